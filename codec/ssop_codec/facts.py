"""What a schema says about each JSON type, as the rules of one node of the field table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ._pattern import Pattern
from .constants import FieldType
from .formats import FORMATS
from .number import Number, compare, is_integer, is_multiple
from .references import Place
from .rules import UNBOUNDED

TYPE_BITS: Final[dict[str, int]] = {
    "string": FieldType.STRING,
    "integer": FieldType.INTEGER,
    "number": FieldType.INTEGER | FieldType.NUMBER,
    "boolean": FieldType.BOOLEAN,
    "null": FieldType.NULL,
    "object": FieldType.OBJECT,
    "array": FieldType.ARRAY,
}
NUMERIC: Final = int(FieldType.INTEGER | FieldType.NUMBER)

Places = tuple[Place, ...]
"""Schemas that one value has to keep, all of them; none: any value."""


# Many are made and none is changed: freezing them would cost most of what making them does.


@dataclass(slots=True)
class StringFacts:
    """What is said about strings."""

    enum: tuple[str, ...] | None = None
    min_length: int = 0
    max_length: int = UNBOUNDED
    format: str = ""
    format_at: str = field(default="", compare=False)
    """Pointer of the schema that says it."""
    pattern: Pattern | None = None
    pattern_at: str = field(default="", compare=False)

    def allows(self, text: str) -> bool:
        """Whether a member of `enum` keeps the other keywords."""
        if self.enum is not None and text not in self.enum:
            return False
        if len(text) < self.min_length or (self.max_length != UNBOUNDED and len(text) > self.max_length):
            return False
        if self.pattern is not None and not self.pattern.search(text):
            return False
        return not self.format or FORMATS[self.format](text)


@dataclass(slots=True)
class NumberFacts:
    """What is said about numbers."""

    enum: tuple[Number, ...] | None = None
    integer_only: bool = False
    is_strict: bool = False
    """An integer has neither point nor exponent, as in draft-04."""
    is_double: bool = False
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Number | None = None

    def allows(self, number: Number) -> bool:
        """Whether a member of `enum` keeps the other keywords."""
        return not (
            (self.enum is not None and number not in self.enum)
            or (self.integer_only and not is_integer(number))
            or (self.minimum is not None and compare(number, self.minimum) < 0)
            or (self.maximum is not None and compare(number, self.maximum) > 0)
            or (self.exclusive_minimum is not None and compare(number, self.exclusive_minimum) <= 0)
            or (self.exclusive_maximum is not None and compare(number, self.exclusive_maximum) >= 0)
            or (self.multiple_of is not None and not is_multiple(number, self.multiple_of))
        )


@dataclass(slots=True)
class ObjectFacts:
    """What is said about objects. `origins` are the pointers of the schemas that say it."""

    origins: tuple[str, ...] = ()
    properties: dict[str, Places] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    additional: Places = ()
    min_properties: int = 0
    max_properties: int = UNBOUNDED


@dataclass(slots=True)
class ArrayFacts:
    """What is said about arrays."""

    origins: tuple[str, ...] = ()
    prefix: tuple[Places, ...] = ()
    items: Places = ()
    min_items: int = 0
    max_items: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Residual:
    """What the rules of a node leave to the judge, for values of `types`."""

    types: int
    pointer: str
    """Of the schema."""
    keyword: str
    """Of which only this keyword counts, with its companions."""


@dataclass(slots=True)
class Facts:
    """What a schema says. Facts about a type count only where `types` has its bit."""

    types: int
    declared_types: int
    enum_keyword: str
    string: StringFacts
    number: NumberFacts
    bools: frozenset[bool]
    object: ObjectFacts
    array: ArrayFacts
    residuals: tuple[Residual, ...] = ()


def nothing() -> Facts:
    """The facts of `false`."""
    return Facts(0, 0, "", StringFacts(), NumberFacts(), frozenset(), ObjectFacts(), ArrayFacts())


def places(*found: Place) -> Places:
    """Those that say anything, each once."""
    if len(found) == 1:
        return () if found[0][0] is True or found[0][0] == {} else found
    return tuple(
        {pointer: (schema, pointer) for schema, pointer in found if schema is not True and schema != {}}.values()
    )


def type_names(types: int) -> Iterable[str]:
    """Names of the types in a bit set, `integer` only where `number` is absent."""
    for name, bits in TYPE_BITS.items():
        if types & bits == bits and not (name == "integer" and types & FieldType.NUMBER):
            yield name
