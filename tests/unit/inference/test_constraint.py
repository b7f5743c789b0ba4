import json
from typing import Any

import pytest

from ssop_inference.core.constraint import Mode, choose_constraint, is_lost
from ssop_inference.core.grammar_size import MAX_STATES, count_states
from ssop_inference.core.limits import EngineLimits, add_limits
from ssop_inference.core.relaxation import Relaxation, read_refusal, relax
from ssop_inference.gate import SchemaGate

LIMITS = EngineLimits(max_string_chars=100, max_array_items=8, max_object_keys=5)


@pytest.fixture(scope="module")
def gate() -> SchemaGate:
    return SchemaGate()


def record(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def added(schema: Any) -> tuple[str, ...]:
    return add_limits(schema, LIMITS)[1]


def test_closed_schema_is_held_in_full_without_limits(gate: SchemaGate) -> None:
    chosen = choose_constraint(record(a={"enum": ["x", "y"]}, b={"type": "boolean"}), gate, LIMITS)
    assert (chosen.mode, chosen.engine_limits) == (Mode.FULL, ())


def test_grammar_is_llguidance_with_one_form_of_blanks(gate: SchemaGate) -> None:
    grammar = choose_constraint(record(a={"type": "null"}), gate, LIMITS).grammar
    assert grammar is not None
    head, _, schema = grammar.partition("\nstart: %json ")
    assert head == "%llguidance {}"
    assert json.loads(schema)["x-guidance"]["whitespace_flexible"] is False


def test_property_order_of_the_schema_is_kept(gate: SchemaGate) -> None:
    chosen = choose_constraint(record(z={"type": "null"}, a={"type": "null"}), gate, LIMITS)
    assert list(chosen.schema["properties"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("schema", "limits"),
    [
        ({"type": "string"}, ("maxLength=100 at /",)),
        (record(s={"type": "string"}), ("maxLength=100 at /s",)),
        (record(s={"type": ["string", "null"]}), ("maxLength=100 at /s",)),
        (record(s={"type": "string", "minLength": 300}), ("maxLength=300 at /s",)),
        (record(s={"type": "string", "format": "date"}), ()),
        (record(s={"type": "string", "enum": ["a"]}), ()),
        (record(s={"type": "string", "maxLength": 9}), ()),
        (record(**{"a/b~c": {"type": "string"}}), ("maxLength=100 at /a~1b~0c",)),
        (record(a={"type": "array", "items": {"type": "null"}}), ("maxItems=8 at /a",)),
        (record(a={"type": "array", "items": {"type": "null"}, "minItems": 20}), ("maxItems=20 at /a",)),
        (
            record(a={"type": "array", "maxItems": 2, "items": {"type": "string"}}),
            ("maxLength=100 at /a/*",),
        ),
        (record(n={"type": "number", "minimum": 0, "maximum": 1}), ("multipleOf=1e-06 at /n",)),
        (record(n={"type": "integer", "minimum": 0, "maximum": 1}), ()),
        (
            record(n={"type": "integer"}),
            ("maximum=1000000000000000 at /n", "minimum=-1000000000000000 at /n"),
        ),
        (record(n={"type": "integer", "exclusiveMinimum": 0}), ("maximum=1000000000000000 at /n",)),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}},
            ("additionalProperties=false at /",),
        ),
        (
            {"type": "object", "additionalProperties": {"type": "null"}},
            ("maxProperties=5 at /",),
        ),
        (
            {"$ref": "#/$defs/N", "$defs": {"N": record(s={"type": "string"})}},
            ("maxLength=100 at #/$defs/N/s",),
        ),
    ],
)
def test_open_value_gets_a_limit_that_is_announced(schema: Any, limits: tuple[str, ...]) -> None:
    assert added(schema) == limits


def test_object_that_is_composed_is_not_closed() -> None:
    schema = {"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}}], "properties": {"b": {}}}
    assert added(schema) == ()


def test_object_that_requires_an_unnamed_key_is_not_closed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}
    assert "additionalProperties=false at /" not in added(schema)


def test_limits_leave_the_given_schema_alone() -> None:
    schema = record(s={"type": "string"})
    add_limits(schema, LIMITS)
    assert schema["properties"]["s"] == {"type": "string"}


@pytest.mark.parametrize("keyword", ["uniqueItems", "minProperties", "oneOf", "not"])
def test_keyword_that_the_engine_lacks_gives_relaxed_and_is_named(gate: SchemaGate, keyword: str) -> None:
    schemas: dict[str, Any] = {
        "uniqueItems": record(a={"type": "array", "items": {"type": "null"}, "uniqueItems": True}),
        "minProperties": {"type": "object", "properties": {k: {"type": "null"} for k in "abc"}, "minProperties": 2},
        "oneOf": record(a={"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]}),
        "not": record(a={"type": "string", "not": {"const": "x"}}),
    }
    chosen = choose_constraint(schemas[keyword], gate, LIMITS)
    assert chosen.mode is Mode.RELAXED
    assert keyword in chosen.detail
    assert chosen.grammar is not None


def test_schema_that_cannot_be_relaxed_gives_envelope_without_a_grammar(gate: SchemaGate) -> None:
    chosen = choose_constraint(record(a={"$dynamicRef": "#x"}), lambda _: 'Unimplemented keys: ["$ref"]', LIMITS)
    assert (chosen.mode, chosen.grammar, chosen.engine_limits) == (Mode.ENVELOPE, None, ())
    assert chosen.detail


def test_engine_that_never_agrees_ends_in_envelope() -> None:
    schema: Any = record(a={"type": "string", "format": "date"})
    assert choose_constraint(schema, lambda _: "Unknown format: date", LIMITS).mode is Mode.ENVELOPE


def test_limits_that_cannot_be_compiled_are_dropped_and_not_announced() -> None:
    chosen = choose_constraint(
        record(s={"type": "string"}), lambda text: "too big" if "maxLength" in text else "", LIMITS
    )
    assert (chosen.mode, chosen.engine_limits) == (Mode.FULL, ())


def test_format_that_is_not_asserted_is_left_out_of_the_grammar(gate: SchemaGate) -> None:
    chosen = choose_constraint(record(a={"type": "string", "format": "color"}), gate, LIMITS, format_assertion=False)
    assert chosen.mode is Mode.FULL
    assert "format" not in chosen.schema["properties"]["a"]


def test_boolean_schema_is_any_value(gate: SchemaGate) -> None:
    assert choose_constraint(True, gate, LIMITS).mode is Mode.FULL


@pytest.mark.parametrize(
    ("schema", "keywords", "expected"),
    [
        ({"patternProperties": {}, "additionalProperties": False}, {"patternProperties"}, {}),
        ({"prefixItems": [{}], "items": False, "minItems": 1}, {"prefixItems"}, {"minItems": 1}),
        ({"if": {}, "then": {}, "else": {}, "type": "null"}, {"if"}, {"type": "null"}),
        ({"properties": {"format": {"format": "x"}}}, {"format"}, {"properties": {"format": {}}}),
        ({"enum": [{"format": "x"}]}, {"format"}, {"enum": [{"format": "x"}]}),
        (
            {"oneOf": [{"format": "x"}, {"type": "null"}]},
            {"format"},
            {"anyOf": [{}, {"type": "null"}]},
        ),
        ({"oneOf": [{"type": "null"}]}, {"format"}, {"oneOf": [{"type": "null"}]}),
        ({"contains": {"format": "x"}, "maxContains": 1}, {"format"}, {"contains": {}}),
    ],
)
def test_relaxing_drops_what_would_become_narrower(schema: Any, keywords: set[str], expected: Any) -> None:
    assert relax(schema, Relaxation(frozenset(keywords))) == expected


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ('Unimplemented keys: ["not", "if"]', {"not", "if"}),
        ("Unknown format: color", {"format"}),
        ("min/maxProperties only supported when", {"minProperties", "maxProperties"}),
        ("regex parse error", {"pattern", "patternProperties"}),
    ],
)
def test_refusal_names_what_to_leave_out(text: str, keywords: set[str]) -> None:
    relaxation = read_refusal(text)
    assert relaxation is not None
    assert relaxation.keywords == keywords


@pytest.mark.parametrize("text", ["Unsatisfiable schema", 'Unimplemented keys: ["$ref"]', "Unimplemented keys: [x]"])
def test_other_refusals_ask_for_nothing(text: str) -> None:
    assert read_refusal(text) is None


@pytest.mark.parametrize("depth", [0, 3])
def test_grammar_that_compiles_and_then_is_too_complex_is_refused(gate: SchemaGate, depth: int) -> None:
    schema: Any = {"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(900)}}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    chosen = choose_constraint(schema, gate, LIMITS)
    assert chosen.mode is Mode.ENVELOPE
    assert "max is" in chosen.detail


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("rule", ["syntax", "type", "format", "limit", ""])
def test_only_what_no_grammar_allows_proves_that_it_was_lost(mode: Mode, rule: str) -> None:
    held = {(Mode.FULL, "syntax"), (Mode.FULL, "type"), (Mode.RELAXED, "syntax")}
    assert is_lost(mode, rule) == ((mode, rule) in held)


def array(**counts: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "null"}, **counts}


def multiples(*divisors: float) -> dict[str, Any]:
    return record(**{f"p{n}": {"type": "number", "multipleOf": divisor} for n, divisor in enumerate(divisors)})


@pytest.mark.parametrize(
    ("schema", "states"),
    [
        (array(), 0),
        (array(minItems=3), 3),
        (array(minItems=3, maxItems=9), 9),
        ({"anyOf": [array(maxItems=2), {"type": "array", "items": array(maxItems=3), "maxItems": 4}]}, 9),
        ({"$defs": {"a": array(maxItems=5)}, **record(x={"$ref": "#/$defs/a"}, y={"$ref": "#/$defs/a"})}, 5),
        (multiples(7), 7),
        (multiples(0.25, 1e-6), 26),
        (multiples(30_000), 3),
        (record(maxItems={"type": "null"}, multipleOf={"enum": [{"maxItems": 9}]}), 0),
    ],
)
def test_states_are_what_a_grammar_counts(schema: Any, states: int) -> None:
    assert count_states(schema) == states


@pytest.mark.parametrize(
    ("schema", "mode", "limits"),
    [
        (array(maxItems=10**9), Mode.FULL, ("maxItems=4096 wherever it is larger",)),
        (array(minItems=5_000, maxItems=10**9), Mode.FULL, ("maxItems=5000 wherever it is larger",)),
        (array(minItems=10**9, maxItems=10**9), Mode.ENVELOPE, ()),
        (record(**{f"a{n}": array(minItems=4_000, maxItems=4_000) for n in range(9)}), Mode.ENVELOPE, ()),
        (multiples(*range(99_991, 99_999)), Mode.RELAXED, None),
        (array(maxItems=4_096), Mode.FULL, ()),
    ],
)
def test_counts_that_would_exhaust_the_engine_are_left_to_the_codec(
    gate: SchemaGate, schema: Any, mode: Mode, limits: tuple[str, ...] | None
) -> None:
    chosen = choose_constraint(schema, gate, LIMITS)
    assert chosen.mode is mode
    assert limits is None or chosen.engine_limits == limits
    assert chosen.schema is None or count_states(chosen.schema) <= MAX_STATES
    assert bool(chosen.detail) == (mode is not Mode.FULL)
