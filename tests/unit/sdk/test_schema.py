"""What callers may give as a schema."""

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from ssop.v1.content_pb2 import OutputSchema
from ssop_codec import FieldType, compile_schema
from ssop_sdk.json_text import dump_json
from ssop_sdk.schema import AnswerSchema, read_schema

SCHEMA = {"type": "object", "title": "名"}


class Event(pydantic.BaseModel):
    name: str
    day: dt.date


class Reading(msgspec.Struct, forbid_unknown_fields=True):
    day: dt.date
    level: int


@dataclasses.dataclass
class Point:
    x: int


class Row(TypedDict):
    x: int


def read(schema: Any) -> AnswerSchema:
    answer = read_schema(schema)
    assert answer is not None
    return answer


def test_none_is_plain_text() -> None:
    assert read_schema(None) is None


@pytest.mark.parametrize(
    "schema", [SCHEMA, json.dumps(SCHEMA), json.dumps(SCHEMA).encode(), OutputSchema(json_schema=json.dumps(SCHEMA))]
)
def test_all_plain_forms_say_the_same(schema: Any) -> None:
    assert json.loads(read(schema).message.json_schema) == SCHEMA


def test_text_travels_as_it_is_since_the_mesh_is_the_judge() -> None:
    assert read("{no json").message.json_schema == "{no json"


def test_model_is_loaded_in_json_mode() -> None:
    assert read(Event).load({"name": "x", "day": "2026-01-02"}) == Event(name="x", day=dt.date(2026, 1, 2))


def test_struct_is_loaded_in_json_mode() -> None:
    answer = read(Reading)
    assert compile_schema(answer.message.json_schema).nodes[0].types == FieldType.OBJECT
    assert answer.load({"day": "2026-01-02", "level": 3}) == Reading(dt.date(2026, 1, 2), 3)


def test_struct_that_does_not_fit_is_a_value_error_as_with_pydantic() -> None:
    with pytest.raises(ValueError, match="level"):
        read(Reading).load({"day": "2026-01-02", "level": "x"})


def test_dataclass_comes_back_as_itself() -> None:
    assert read(Point).load({"x": 1}) == Point(1)


def test_typed_dict_and_generic_alias_are_taken() -> None:
    assert json.loads(read(list[Row]).message.json_schema)["type"] == "array"


def test_type_adapter_is_taken() -> None:
    assert read(pydantic.TypeAdapter(list[int])).load([1, 2]) == [1, 2]


@pytest.mark.parametrize("schema", [5, 1.5, [], ["type"], object(), int, {1, 2}])
def test_what_can_be_no_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(TypeError):
        read_schema(schema)


@pytest.mark.parametrize("schema", ["", "  ", b"\xff", {"maximum": float("nan")}])
def test_impossible_values_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - three different texts
        read_schema(schema)


def test_format_assertion_is_set_on_a_copy() -> None:
    original = OutputSchema(json_schema="{}")
    answer = read_schema(original, format_assertion=False)
    assert answer is not None
    assert answer.message.HasField("format_assertion")
    assert not original.HasField("format_assertion")


def test_exact_numbers_stay_exact_in_json_text() -> None:
    assert dump_json({"a": [Decimal("1e400")], "b": "x"}) == '{"a": [1E+400], "b": "x"}'
