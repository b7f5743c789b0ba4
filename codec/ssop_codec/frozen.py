"""JSON values in a form that can be compared and hashed as JSON Schema compares them: 1 is 1.0 and not true."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from .number import from_python, parse_number


class _Text(str):
    """A number as it was written."""

    __slots__ = ()


def freeze(value: Any) -> object:
    """A tree of dict, list, str, int, float, Decimal, bool and None as tuples and frozensets."""
    if value is None or isinstance(value, bool):
        return value, "literal"
    if isinstance(value, _Text):
        return parse_number(value.encode())
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, Decimal)):
        return from_python(value)
    if isinstance(value, list):
        return ("array", *(freeze(item) for item in value))
    return frozenset((key, freeze(member)) for key, member in value.items())


def freeze_text(text: bytes) -> object:
    """The same of a JSON text."""
    return freeze(json.loads(text, parse_int=_Text, parse_float=_Text))
