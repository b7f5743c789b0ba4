"""Sets of code points as sorted, disjoint intervals, and the sets that regular expressions have names for."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final

from .pattern_scripts import NAMES, RANGES

Intervals = tuple[tuple[int, int], ...]
"""First and last code point of each interval; sorted, with a gap between any two."""

MAX_POINT: Final = 0x10FFFF
NOTHING: Final[Intervals] = ()
ANYTHING: Final[Intervals] = ((0, MAX_POINT),)


def union(parts: Iterable[tuple[int, int]]) -> Intervals:
    """Any intervals, put in order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def negate(intervals: Intervals) -> Intervals:
    """All code points that are not in it."""
    gaps = []
    at = 0
    for low, high in intervals:
        if low > at:
            gaps.append((at, low - 1))
        at = high + 1
    if at <= MAX_POINT:
        gaps.append((at, MAX_POINT))
    return tuple(gaps)


DIGITS: Final[Intervals] = ((0x30, 0x39),)
WORD: Final = union(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
LINE_ENDS: Final = union(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)))
SPACE: Final = union(
    (
        (0x09, 0x0D),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    )
)
"""WhiteSpace and LineTerminator of ECMA-262."""
ESCAPED: Final[dict[str, Intervals]] = {
    "d": DIGITS,
    "D": negate(DIGITS),
    "w": WORD,
    "W": negate(WORD),
    "s": SPACE,
    "S": negate(SPACE),
}

_LONG_NAMES: Final = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Surrogate": "Cs",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}


@cache
def _categories() -> dict[str, Intervals]:
    """Each general category of two letters, as the interpreter's Unicode database has it."""
    runs: dict[str, list[tuple[int, int]]] = {}
    first = 0
    current = unicodedata.category(chr(0))
    for point in range(1, sys.maxunicode + 2):
        category = unicodedata.category(chr(point)) if point <= sys.maxunicode else ""
        if category != current:
            runs.setdefault(current, []).append((first, point - 1))
            first, current = point, category
    return {name: tuple(intervals) for name, intervals in runs.items()}


def _script(name: str) -> Intervals | None:
    ranges = RANGES.get(NAMES.get(name, name))
    if ranges is None:
        return None
    ends = (text.partition("-") for text in ranges.split())
    return tuple((int(low, 16), int(high or low, 16)) for low, _, high in ends)


def property_set(name: str) -> Intervals | None:
    r"""The set of `\p{name}`; None where the property is not known here."""
    if name in ("Any", "ASCII"):
        return ANYTHING if name == "Any" else ((0, 0x7F),)
    if name == "Assigned":
        return negate(_categories()["Cn"])
    key, equals, value = name.partition("=")
    if key in ("Script", "sc"):
        return _script(value)
    if equals:
        if key not in ("General_Category", "gc"):
            return None
        name = value
    name = _LONG_NAMES.get(name, name)
    if name == "LC":
        members: tuple[str, ...] = ("Lu", "Ll", "Lt")
    elif len(name) == 1:
        members = tuple(known for known in _categories() if known[0] == name)
    else:
        members = (name,) if name in _categories() else ()
    if not members:
        return None
    return union(interval for member in members for interval in _categories()[member])
