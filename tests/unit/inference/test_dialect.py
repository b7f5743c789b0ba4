from typing import Any

import pytest

from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.dialect import (
    ANTHROPIC_DIALECTS,
    DIALECTS,
    constrain_upstream,
    describe_schema,
    dialect_of_host,
)
from ssop_inference.core.limits import EngineLimits
from ssop_inference.gate import SchemaGate

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def with_property(**schema: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": {**CLOSED["properties"], "a": schema}}


def constrain(name: str, schema: Any, *, format_assertion: bool = True) -> Constraint:
    dialect = {**DIALECTS, **ANTHROPIC_DIALECTS}[name]
    return constrain_upstream(schema, dialect, SchemaGate(), EngineLimits(), format_assertion=format_assertion)


@pytest.mark.parametrize(
    "name", ["openai", "vllm", "vllm-guided", "sglang", "llama-server", "llama-server-gbnf", "xai", "anthropic"]
)
def test_simple_schema_is_held_in_full(name: str) -> None:
    assert constrain(name, CLOSED).mode is Mode.FULL


@pytest.mark.parametrize("name", ["deepseek", "qwen", "plain", "json-object", "anthropic-tool"])
def test_server_without_a_grammar_is_in_envelope_mode(name: str) -> None:
    assert constrain(name, CLOSED).mode is Mode.ENVELOPE


@pytest.mark.parametrize("name", ["openai", "vllm", "sglang", "llama-server-gbnf", "xai"])
def test_schema_that_the_grammar_does_not_keep_is_relaxed_and_says_so(name: str) -> None:
    constraint = constrain(name, with_property(type="array", items={"type": "integer"}, uniqueItems=True))
    assert constraint.mode is Mode.RELAXED
    assert "uniqueItems" in constraint.detail


def test_keyword_that_a_server_refuses_is_not_sent() -> None:
    constraint = constrain("openai", with_property(type="string", maxLength=5))
    assert constraint.mode is Mode.RELAXED
    assert "maxLength" not in constraint.schema["properties"]["a"]


def test_property_of_the_name_of_a_keyword_stays() -> None:
    schema = {**CLOSED, "properties": {"not": {"type": "integer"}}, "required": ["not"]}
    constraint = constrain("openai", schema)
    assert (constraint.mode, constraint.schema) == (Mode.FULL, schema)


def test_one_of_is_sent_as_any_of_and_relaxed() -> None:
    constraint = constrain("vllm", with_property(oneOf=[{"type": "integer"}, {"type": "null"}]))
    assert constraint.mode is Mode.RELAXED
    assert "oneOf" not in constraint.schema["properties"]["a"]


def test_optional_property_is_never_made_required() -> None:
    constraint = constrain("openai", {**CLOSED, "required": ["a"]})
    assert constraint.mode is Mode.ENVELOPE
    assert "optional property (b)" in constraint.detail


def test_object_that_says_nothing_of_others_is_closed_and_announced() -> None:
    schema = {key: value for key, value in CLOSED.items() if key != "additionalProperties"}
    constraint = constrain("openai", schema)
    assert constraint.mode is Mode.FULL
    assert constraint.engine_limits == ("additionalProperties=false at a/b",)


def test_map_can_not_be_strict() -> None:
    constraint = constrain("openai", with_property(type="object", additionalProperties={"type": "integer"}))
    assert constraint.mode is Mode.ENVELOPE


@pytest.mark.parametrize("schema", [{"type": "array"}, True, {"anyOf": [{"type": "object"}]}])
def test_openai_is_told_objects_only(schema: Any) -> None:
    assert constrain("openai", schema) == Constraint(Mode.ENVELOPE, detail="openai takes objects only")


def test_format_that_is_not_asserted_is_not_sent() -> None:
    schema = with_property(type="string", format="date")
    assert constrain("vllm", schema, format_assertion=False).mode is Mode.FULL
    assert constrain("vllm", schema).mode is Mode.RELAXED


def test_json_mode_is_for_objects_only() -> None:
    assert constrain("deepseek", {"type": "array"}).schema is None


def test_tool_takes_objects_only() -> None:
    assert constrain("anthropic-tool", {"type": "array"}).schema is None
    assert constrain("anthropic-tool", CLOSED).schema == CLOSED


def test_optional_property_is_no_matter_to_anthropic() -> None:
    assert constrain("anthropic", {**CLOSED, "required": ["a"]}).mode is Mode.FULL


MUTUAL = {
    "x": {"anyOf": [{"$ref": "#/$defs/y"}, {"type": "null"}]},
    "y": {"type": "array", "items": {"$ref": "#/$defs/x"}},
}


@pytest.mark.parametrize(
    "schema",
    [
        with_property(**{"$ref": "#"}),
        {**with_property(**{"$ref": "#/$defs/x"}), "$defs": MUTUAL},
        with_property(type="object", additionalProperties={"type": "integer"}),
    ],
    ids=["itself", "by two steps", "map"],
)
def test_schema_that_anthropic_can_not_be_told_is_the_input_of_a_tool(schema: Any) -> None:
    constraint = constrain("anthropic", schema)
    assert (constraint.mode, constraint.schema) == (Mode.ENVELOPE, schema)


def test_reference_that_is_no_recursion_is_held_in_full() -> None:
    schema = {**with_property(**{"$ref": "#/$defs/x"}), "$defs": {"x": {"type": "integer"}}}
    assert constrain("anthropic", schema).mode is Mode.FULL


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("openai", "response_format"),
        ("vllm", "structured_outputs"),
        ("vllm-guided", "guided_json"),
        ("llama-server", "grammar"),
        ("deepseek", "response_format"),
    ],
)
def test_schema_stands_where_the_server_looks_for_it(name: str, field: str) -> None:
    assert list(describe_schema(DIALECTS[name], constrain(name, CLOSED))) == [field]


def test_plain_server_is_told_nothing() -> None:
    assert describe_schema(DIALECTS["plain"], constrain("plain", CLOSED)) == {}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("my.openai.azure.com", "openai"),
        ("api.x.ai", "xai"),
        ("api.deepseek.com", "deepseek"),
        ("dashscope.aliyuncs.com", "qwen"),
        ("evilapi.x.ai", ""),
        ("localhost", ""),
    ],
)
def test_vendor_is_known_by_its_host(host: str, name: str) -> None:
    assert dialect_of_host(host) == name
