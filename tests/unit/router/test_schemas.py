"""Compiled schemas: what the tools of one request may cost together."""

import json

import pytest

from ssop.v1.content_pb2 import Prompt, Tool
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
