"""What is judged when a value is whole, exactly and slowly; the encoder decides the usual cases itself."""

from __future__ import annotations

from .constants import FieldType
from .formats import FORMATS
from .number import compare, is_integer, is_multiple, parse_number
from .rules import Rule


def broken_number_rule(rule: Rule, text: bytes) -> str:
    """The first keyword that the number breaks, or an empty string. `text` is a valid JSON number."""
    value = parse_number(text)
    broken = (
        ("type", not rule.types & FieldType.NUMBER and not is_integer(value)),
        ("type", rule.is_strict and not rule.types & FieldType.NUMBER and bool(set(text) & set(b".eE"))),
        (rule.enum_keyword, rule.enum_numbers is not None and value not in rule.enum_numbers),
        ("minimum", rule.minimum is not None and compare(value, rule.minimum) < 0),
        ("maximum", rule.maximum is not None and compare(value, rule.maximum) > 0),
        (
            "exclusiveMinimum",
            rule.exclusive_minimum is not None and compare(value, rule.exclusive_minimum) <= 0,
        ),
        (
            "exclusiveMaximum",
            rule.exclusive_maximum is not None and compare(value, rule.exclusive_maximum) >= 0,
        ),
        ("multipleOf", rule.multiple_of is not None and not is_multiple(value, rule.multiple_of)),
    )
    return next((keyword for keyword, is_broken in broken if is_broken), "")


def keeps_format(rule: Rule, text: bytes) -> bool:
    """`text` is valid UTF-8."""
    return FORMATS[rule.string_format](text.decode())
