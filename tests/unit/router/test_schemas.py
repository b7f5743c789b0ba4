"""Compiled schemas: which are kept, and what the tools of one request may cost together."""

import json

import pytest

from ssop.v1.content_pb2 import OutputSchema, Prompt, Tool
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Limits, Schema
from ssop_router.core.parts import read_parts
from ssop_router.schemas import SchemaCache


def tool(number: int, properties: int, description: str = "") -> Tool:
    names = {f"p{number}_{index}": {"type": "string"} for index in range(properties)}
    schema = {"type": "object", "properties": names, "description": description}
    return Tool(name=f"t{number}", parameters_schema=json.dumps(schema))


def of_tools(tools: list[Tool]) -> Schema | None:
    prompt = Prompt(tools=tools)
    return SchemaCache(16).of_prompt(prompt, read_parts(prompt, prompt.SerializeToString()))


@pytest.mark.parametrize(
    "tools",
    [
        [tool(number, Limits().max_nodes // 8) for number in range(8)],
        [tool(number, 1, "x" * (Limits().max_schema_bytes // 8)) for number in range(8)],
    ],
    ids=["nodes", "bytes"],
)
def test_tools_together_may_cost_no_more_than_one_schema(tools: list[Tool]) -> None:
    with pytest.raises(MeshError) as caught:
        of_tools(tools)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
    assert [path for path, _ in caught.value.fields] == ["prompt.tools"]


def test_tools_within_the_caps_are_taken() -> None:
    assert of_tools([tool(number, 20) for number in range(64)]) is None


def outputs(count: int) -> list[OutputSchema]:
    return [OutputSchema(json_schema=json.dumps({"type": "string", "maxLength": size})) for size in range(count)]


@pytest.mark.parametrize("length", [0, 10_000], ids=["short", "long"])
def test_a_schema_that_comes_again_is_not_compiled_again(length: int) -> None:
    cache = SchemaCache(16)
    source = OutputSchema(json_schema=json.dumps({"type": "string", "description": "x" * length}))
    assert cache.compile(source) is cache.compile(source)


def test_the_one_that_was_not_asked_for_longest_goes() -> None:
    cache = SchemaCache(2)
    one, two, three = outputs(3)
    first, second = cache.compile(one), cache.compile(two)
    assert cache.compile(one) is first
    cache.compile(three)
    assert cache.compile(one) is first
    assert cache.compile(two) is not second


def test_what_is_asked_for_all_the_time_is_not_driven_out_by_refusals() -> None:
    cache = SchemaCache(2)
    one, two = outputs(2)
    schema = cache.compile(one)
    for depth in range(1, 4):
        with pytest.raises(MeshError):
            cache.compile(OutputSchema(json_schema="{" * depth))
        assert cache.compile(one) is schema
    cache.compile(two)
    assert cache.compile(one) is schema


def test_schemas_take_turns() -> None:
    cache = SchemaCache(16)
    sources = outputs(2)
    one, two = (cache.compile(source) for source in sources)
    assert [cache.compile(source) for source in sources * 2] == [one, two, one, two]


def test_a_refusal_is_raised_anew_each_time() -> None:
    cache = SchemaCache(16)
    refused = OutputSchema(json_schema="{")
    errors = []
    for _ in range(2):
        with pytest.raises(MeshError) as caught:
            cache.compile(refused)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert [error.reason for error in errors] == [ErrorReason.ERROR_REASON_SCHEMA_REFUSED] * 2
