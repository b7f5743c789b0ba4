"""The part of a rule that judges a value by itself: types, members, numbers, strings."""

from __future__ import annotations

from ._pattern import Pattern
from .constants import FieldType
from .facts import Facts, StringFacts
from .formats import SHAPES
from .pattern import compile_pattern
from .rules import Rule


def scalar_rule(facts: Facts, pointer: str) -> Rule:
    """The rule without anything about members of objects and arrays."""
    string, number = facts.string, facts.number
    strings = None if string.enum is None else tuple(sorted(s.encode() for s in string.enum))
    return Rule(
        pointer=pointer,
        types=facts.types,
        declared_types=facts.declared_types,
        enum_keyword=facts.enum_keyword,
        enum_strings=strings if facts.types & FieldType.STRING else None,
        enum_numbers=number.enum if facts.types & FieldType.INTEGER else None,
        bools=facts.bools,
        is_double=number.is_double and bool(facts.types & FieldType.NUMBER),
        is_strict=number.is_strict,
        minimum=number.minimum,
        maximum=number.maximum,
        exclusive_minimum=number.exclusive_minimum,
        exclusive_maximum=number.exclusive_maximum,
        multiple_of=number.multiple_of,
        min_length=string.min_length,
        max_length=string.max_length,
        string_format=string.format,
        shape=_shape(string),
        pattern=string.pattern,
    )


def _shape(said: StringFacts) -> Pattern | None:
    text = "" if said.pattern is not None or said.enum is not None else SHAPES.get(said.format, "")
    return compile_pattern(text) if text else None
