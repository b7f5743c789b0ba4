"""JSON in the canonical form of RFC 8785: one text, and so one hash, for each schema."""

from __future__ import annotations

import json
import re
from decimal import Decimal

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_EXACT = 2**53
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def canonical(value: object) -> bytes:
    """Canonical bytes of a tree of dict, list, str, int, float, Decimal, bool and None.

    Raises ValueError for numbers beyond the double range, UnicodeEncodeError for lone surrogates.
    """
    if _has_plain_numbers(value):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if text.isascii() or not _BEYOND_BMP.search(text):
            # Code points are sorted as UTF-16 units are.
            return text.encode()
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode()


def _has_plain_numbers(root: object) -> bool:
    """Whether all numbers are integers that are written as they are."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int):
            if not -_EXACT < value < _EXACT:
                return False
        elif value is not None and not isinstance(value, str):
            return False
    return True


def _write(value: object, out: list[str]) -> None:  # noqa: C901  # one branch per JSON type
    if value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, str):
        out.append(_quote(value))
    elif isinstance(value, (int, float, Decimal)):
        out.append(number_text(value))
    elif isinstance(value, list):
        out.append("[")
        for position, item in enumerate(value):
            if position:
                out.append(",")
            _write(item, out)
        out.append("]")
    elif isinstance(value, dict):
        out.append("{")
        for position, key in enumerate(sorted(value, key=_utf16)):
            if position:
                out.append(",")
            out.append(_quote(key))
            out.append(":")
            _write(value[key], out)
        out.append("}")
    else:
        raise TypeError(f"{type(value).__name__} is no JSON type")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _quote(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04x}", text) + '"'


def number_text(value: int | float | Decimal) -> str:
    """The text that ECMAScript gives the nearest double."""
    try:
        double = float(value)
    except OverflowError:
        double = float("inf")
    if double != double or double in (float("inf"), float("-inf")):  # noqa: PLR0124
        raise ValueError("number beyond the range of a double")
    if double == 0:
        return "0"
    sign, digit_tuple, exponent = Decimal(repr(double)).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101  # finite, so the exponent is a number
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    point = len(digit_tuple) + exponent
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        text = f"{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" + text if sign else text
