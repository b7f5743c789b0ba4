"""Unions, negations, conditions and what else runs beside the rules of the nodes: one fact each."""

import json
from typing import Any

import pytest

from helpers.codec_cases import decode, encode
from ssop_codec import Encoder, FrameKind, Limits, Verdict, Violation, compile_schema

CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "tricks": {"type": "array"}}, "required": ["kind"]}


def broken(schema: Any, text: str, **options: Any) -> Violation:
    """The violation of a document that has one."""
    _, verdict, violation, _ = encode(compile_schema(schema), text.encode(), **options)
    assert verdict == Verdict.INVALID
    assert isinstance(violation, Violation)
    return violation


def is_valid(schema: Any, value: Any) -> bool:
    _, verdict, _, _ = encode(compile_schema(schema), json.dumps(value).encode())
    return bool(verdict == Verdict.OK)


def test_union_fails_at_the_byte_that_no_branch_has() -> None:
    violation = broken({"anyOf": [CAT, DOG]}, '{"kind": "cow"}')
    assert (violation.rule, violation.offset_bytes) == ("anyOf", 11)


def test_branch_that_is_dead_does_not_come_back() -> None:
    violation = broken({"anyOf": [CAT, DOG]}, '{"kind": "dog", "tricks": 1}')
    assert (violation.rule, violation.offset_bytes) == ("anyOf", 26)


def test_members_of_an_open_union_leave_at_their_last_byte() -> None:
    encoder = Encoder(compile_schema({"anyOf": [CAT, DOG]}))
    encoder.feed(b'{"lives": "x"')
    frames = decode(encoder.drain(True))[1]
    assert [(f.kind, f.path, f.value) for f in frames if f.kind == FrameKind.VALUE] == [
        (FrameKind.VALUE, "/lives", "x")
    ]


def test_one_of_fails_when_a_second_branch_is_sure() -> None:
    schema = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    violation = broken(schema, '{"a": 1, "b": 2}')
    assert (violation.rule, violation.offset_bytes) == ("oneOf", 11)


def test_negation_fails_as_soon_as_its_schema_is_sure() -> None:
    violation = broken({"not": {"type": "object"}}, "{}")
    assert (violation.rule, violation.offset_bytes) == ("not", 0)


def test_condition_names_the_side_that_failed() -> None:
    schema = {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}
    assert broken(schema, '{"a": 1}').rule == "then"
    assert broken(schema, '{"a": 2}').rule == "else"


def test_all_of_is_the_rules_of_one_node() -> None:
    schema = compile_schema(
        {"allOf": [{"properties": {"a": {"minimum": 1}}}, {"properties": {"a": {"maximum": 5}}, "required": ["a"]}]}
    )
    assert (len(schema.nodes), len(schema.checks)) == (2, 0)
    assert encode(schema, b'{"a": 9}')[2].rule == "maximum"


def test_keywords_beside_a_reference_count() -> None:
    schema = {"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer"}}}
    assert broken(schema, "3").rule == "minimum"


def test_union_of_types_needs_no_judge() -> None:
    schema = compile_schema({"anyOf": [CAT, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
    assert not schema.checks


def test_pattern_properties_judge_the_keys_that_match() -> None:
    schema = {"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False}
    assert is_valid(schema, {"n1": 1})
    assert broken(schema, '{"n1": "x"}').rule == "type"
    assert broken(schema, '{"m": 1}').rule == "additionalProperties"


def test_property_names_are_judged_while_the_key_comes() -> None:
    violation = broken({"propertyNames": {"enum": ["abc"]}}, '{"axx": 1}')
    assert (violation.rule, violation.offset_bytes) == ("propertyNames", 3)


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        ("1", "1.0", True),
        ("1", "true", False),
        ('{"a": 1, "b": [2]}', '{"b": [2e0], "a": 1}', True),
        ('"a"', '"\\u0061"', True),
        ("[1, 2]", "[2, 1]", False),
        ("0", "-0.0", True),
        ("9007199254740993", "9007199254740992", False),
    ],
)
def test_unique_items_compare_as_json_does(first: str, second: str, is_equal: bool) -> None:
    text = f"[{first}, {second}]".encode()
    verdict = encode(compile_schema({"uniqueItems": True}), text)[1]
    assert (verdict == Verdict.INVALID) == is_equal


def test_item_that_comes_twice_is_told_at_its_end() -> None:
    assert broken({"uniqueItems": True}, '["ab", "cd", "ab"]').offset_bytes == 16


def test_contains_counts_the_items_it_takes() -> None:
    schema = {"contains": {"const": 1}, "minContains": 2, "maxContains": 2}
    assert is_valid(schema, [1, 0, 1])
    assert broken(schema, "[1, 0]").rule == "minContains"
    assert broken(schema, "[1, 1, 1]").rule == "maxContains"


def test_enum_holds_objects_and_arrays() -> None:
    schema = {"enum": [{"a": [1]}, [2], "x"]}
    assert is_valid(schema, {"a": [1.0]})
    assert broken(schema, '{"a": [2]}').rule == "enum"
    assert broken(schema, "5").offset_bytes == 0


def test_dependent_keywords_count_where_the_key_is() -> None:
    schema = {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}}
    assert is_valid(schema, {"b": 1})
    assert broken(schema, '{"a": 1}').rule == "dependentRequired"
    assert broken(schema, '{"c": 1, "b": 1}').rule == "dependentSchemas"


def test_list_of_items_is_a_tuple() -> None:
    schema = {"items": [{"type": "integer"}], "additionalItems": False}
    assert is_valid(schema, [1])
    assert broken(schema, "[1, 2]").rule == "items"


def test_anchor_and_embedded_resource_are_found() -> None:
    schema = {
        "$defs": {
            "a": {"$anchor": "here", "type": "string"},
            "r": {"$id": "http://x.example/r", "$defs": {"b": {"type": "integer"}}, "$ref": "#/$defs/b"},
        },
        "properties": {"p": {"$ref": "#here"}, "q": {"$ref": "http://x.example/r"}},
    }
    assert is_valid(schema, {"p": "x", "q": 1})
    assert not is_valid(schema, {"p": 1})
    assert not is_valid(schema, {"q": "x"})


def test_pointer_stops_at_the_union() -> None:
    violation = broken({"properties": {"a": {"anyOf": [CAT, DOG]}}}, '{"a": {"kind": 1}}')
    assert violation.pointer == "/a"


def test_recursive_union_runs_each_schema_once() -> None:
    branches = [{"items": {"$ref": "#"}, "type": "array"} for _ in range(8)]
    text = b"[" * 40 + b"]" * 40
    assert encode(compile_schema({"anyOf": branches}), text)[1] == Verdict.OK


@pytest.mark.parametrize(
    ("schema", "text", "limits"),
    [
        ({"uniqueItems": True}, '["' + "x" * 50 + '"]', Limits(max_held_bytes=20)),
        ({"uniqueItems": True}, "[1, 2, 3]", Limits(max_unique_items=2)),
        ({"anyOf": [CAT, DOG]}, "{}", Limits(max_live_checks=2)),
    ],
)
def test_caps_of_the_judge_are_limits(schema: Any, text: str, limits: Limits) -> None:
    assert broken(schema, text, limits=limits).rule == "limit"


@pytest.mark.parametrize(
    ("schema", "text", "rule", "offset"),
    [
        ({"type": "number", "minimum": 0}, "-1.5 ", "minimum", 1),
        ({"type": "number", "minimum": 1}, "-1 ", "minimum", 0),
        ({"type": "number", "exclusiveMinimum": 0}, "-0 ", "exclusiveMinimum", 0),
        ({"type": "number", "maximum": 0}, "0.01 ", "maximum", 3),
        ({"type": "number", "exclusiveMaximum": 0}, "0 ", "exclusiveMaximum", 0),
        ({"format": "date"}, '"2024-13-01"', "format", 7),
        ({"format": "email"}, '"not an email"', "format", 4),
        ({"properties": {"a": {}}, "additionalProperties": False}, '{"a": 1, "b": 2}', "additionalProperties", 7),
    ],
)
def test_violation_is_told_at_the_first_byte(schema: Any, text: str, rule: str, offset: int) -> None:
    violation = broken(schema, text)
    assert (violation.rule, violation.offset_bytes) == (rule, offset)


def test_minus_zero_is_not_below_zero() -> None:
    assert is_valid({"minimum": 0}, -0.0)


def test_draft_04_says_of_a_bound_whether_it_is_exclusive() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    assert broken(schema, "1").rule == "exclusiveMinimum"


def test_integer_of_draft_04_has_no_point() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    assert broken(schema, "1.0").rule == "type"
