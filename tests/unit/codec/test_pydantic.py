"""Schemas as Pydantic writes them."""

import enum
import uuid
from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from helpers.codec_cases import decode, encode
from ssop_codec import FieldType, Verdict, compile_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    zip_code: Annotated[str, Field(min_length=5, max_length=5)] | None = None


class Person(BaseModel):
    """Most of what models use."""

    name: str = Field(description="full name", examples=["Ada"])
    age: Annotated[int, Field(ge=0, le=150)]
    score: float | None
    amount: int | float
    colour: Colour
    kind: Literal["a", "b"]
    fixed: Literal["only"] = "only"
    home: Address
    work: Address | None = None
    tags: list[str] = []
    pair: tuple[int, str]
    counts: dict[str, int] = {}
    born: date
    seen: datetime
    id: uuid.UUID
    manager: "Person | None" = None


ADA = Person(
    name="Ada",
    age=36,
    score=None,
    amount=1.5,
    colour=Colour.RED,
    kind="b",
    home=Address(street="St. James", zip_code="12345"),
    tags=["x"],
    pair=(1, "y"),
    counts={"k": 2},
    born=date(1815, 12, 10),
    seen=datetime(1852, 11, 27, tzinfo=UTC),
    id=uuid.UUID(int=7),
)


def test_model_comes_back() -> None:
    boss = ADA.model_copy(update={"manager": ADA, "work": Address(street="Dorset")})
    schema = compile_schema(Person.model_json_schema())
    chunks, verdict, violation, _ = encode(schema, boss.model_dump_json().encode())
    assert violation is None
    assert verdict == Verdict.OK
    assert Person.model_validate(decode(chunks)[0].result) == boss


def test_optional_model_is_one_node() -> None:
    schema = compile_schema(Person.model_json_schema())
    work = next(node for node in schema.nodes if node.key == "work")
    assert work.types == FieldType.OBJECT | FieldType.NULL
    manager = next(node for node in schema.nodes if node.key == "manager")
    assert manager.ref_node == 0


def test_nothing_of_the_model_is_left_unchecked() -> None:
    assert compile_schema(Person.model_json_schema()).annotations == ()


def test_list_of_models_at_the_root() -> None:
    adapter = TypeAdapter(list[Address])
    schema = compile_schema(adapter.json_schema())
    chunks = encode(schema, b'[{"street":"a","zip_code":null},{"street":"b"}]')[0]
    assert adapter.validate_python(decode(chunks)[0].result) == [Address(street="a"), Address(street="b")]
