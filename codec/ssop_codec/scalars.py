"""The part of a rule that judges a value by itself: types, members, numbers, strings."""

from __future__ import annotations

from .constants import FieldType
from .facts import Facts
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
        pattern=string.pattern,
    )
