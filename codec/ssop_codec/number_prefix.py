"""What a number can still become while its text arrives: exactly, and slowly.

A text of a few digits can become any number with these leading digits, at any size, because an exponent may follow:
`65536` the number 6553.6, by `65536e-1`, but no integer below 65,536. Once the exponent has begun, the digits are
fixed and the size is not. The encoder asks here only where a number does not conform as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from .checks import broken_number_rule
from .constants import FieldType
from .number import Number, compare, is_multiple, normal
from .rules import Rule

_ZERO: Number = (0, 0)
_MAX_ORDER = 400
"""Bounds and steps beyond 10 to this power, or below its inverse, give a number the benefit of the doubt."""


def broken_by_prefix(rule: Rule, text: bytes) -> str:
    """The keyword that is broken by every number that begins with `text`, or an empty string."""
    if _can_conform(rule, text):
        return ""
    whole = text if text[-1:].isdigit() else text + b"0"
    return broken_number_rule(rule, whole) or "type"


def first_break(rule: Rule, text: bytes) -> tuple[int, str]:
    """How many bytes of the text break the rule, whatever follows, and the keyword; `(0, "")`: not even all."""
    if not broken_by_prefix(rule, text):
        return 0, ""
    return next((n, keyword) for n in range(1, len(text) + 1) if (keyword := broken_by_prefix(rule, text[:n])))


@dataclass(frozen=True)
class _Wanted:
    """What the numbers of one sign have to be, as magnitudes."""

    low: Number | None
    is_low_open: bool
    high: Number | None
    is_high_open: bool
    step: Number | None
    members: tuple[Number, ...] | None

    def is_above(self, number: Number) -> bool:
        return self.low is None or compare(number, self.low) >= int(self.is_low_open)

    def is_below(self, number: Number) -> bool:
        return self.high is None or compare(number, self.high) <= -int(self.is_high_open)

    def holds(self, number: Number) -> bool:
        """Whether the number conforms."""
        return (
            self.is_above(number)
            and self.is_below(number)
            and (self.members is None or number in self.members)
            and (self.step is None or is_multiple(number, self.step))
        )


def _can_conform(rule: Rule, text: bytes) -> bool:
    is_negative = text.startswith(b"-")
    mantissa, mark, exponent = text.lstrip(b"-").lower().partition(b"e")
    whole, point, fraction = mantissa.partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    is_strict = rule.is_strict and not rule.types & FieldType.NUMBER
    if is_strict and (point or mark):
        return False
    wanted = _wanted(rule, is_negative)
    if mark:
        return _can_scale(normal(int(digits or b"0"), -len(fraction)), exponent.decode(), wanted)
    if digits:
        return _can_lead(digits.decode(), wanted, is_strict=is_strict)
    if wanted.holds(_ZERO):
        return True
    # A strict integer that begins with 0 is 0.
    return not (is_strict and whole) and any(_can_lead(str(n), wanted, is_strict=is_strict) for n in range(1, 10))


def _wanted(rule: Rule, is_negative: bool) -> _Wanted:
    low = _tighter(rule.minimum, rule.exclusive_minimum, 1)
    high = _tighter(rule.maximum, rule.exclusive_maximum, -1)
    members = rule.enum_numbers
    if is_negative:
        low, high = (_negated(high[0]), high[1]), (_negated(low[0]), low[1])
        members = None if members is None else tuple((-c, e) for c, e in members)
    return _Wanted(*low, *high, _step(rule), members)


def _tighter(inclusive: Number | None, exclusive: Number | None, sign: int) -> tuple[Number | None, bool]:
    """The narrower of two bounds, and whether it is exclusive. `sign` 1: lower bounds, -1: upper ones."""
    if inclusive is None or exclusive is None:
        return (exclusive, True) if inclusive is None else (inclusive, False)
    return (exclusive, True) if compare(exclusive, inclusive) * sign >= 0 else (inclusive, False)


def _negated(number: Number | None) -> Number | None:
    return None if number is None else (-number[0], number[1])


def _step(rule: Rule) -> Number | None:
    """Of what all numbers that conform are multiples."""
    step = rule.multiple_of
    if rule.types & FieldType.NUMBER:
        return step
    if step is None or step[1] < -_MAX_ORDER:
        return 1, 0
    # The integers among the multiples of p/q, in lowest terms, are the multiples of p.
    return step if step[1] >= 0 else normal(step[0] // gcd(step[0], 10 ** -step[1]), 0)


def _order(number: Number) -> int:
    """Digits before the point."""
    return len(str(number[0])) + number[1]


def _fraction(number: Number) -> Fraction:
    return Fraction(number[0]) * Fraction(10) ** number[1]


# -- before the exponent ---------------------------------------------------------------------------------------------


def _can_lead(digits: str, wanted: _Wanted, *, is_strict: bool) -> bool:
    """Whether a number with these leading digits, the first of which is not 0, conforms. `is_strict`: only more digits
    may follow."""
    if wanted.members is not None:
        return any(
            (str(c) + "0" * (e if is_strict else len(digits))).startswith(digits) and wanted.holds((c, e))
            for c, e in wanted.members
            if c > 0 and (e >= 0 or not is_strict)
        )
    if wanted.high is None or (wanted.low is None and wanted.step is None and not is_strict):
        return wanted.high is None or wanted.high[0] > 0
    if wanted.high[0] <= 0:
        return False
    # The least that is asked for: no smaller scale can hold it.
    least = [n for n in (wanted.low, wanted.step) if n is not None and n[0] > 0]
    first = max(map(_order, least), default=0) - len(digits) - 1
    if is_strict:
        first = max(first, 0)
    last = _order(wanted.high) - len(digits)
    if max(map(abs, (first, last, *(n[1] for n in (*least, wanted.high))))) > _MAX_ORDER:
        return True
    # The greatest first: a smaller scale is asked only where the steps are wide.
    return any(_meets(int(digits), scale, wanted) for scale in range(last, first - 1, -1))


def _meets(lead: int, scale: int, wanted: _Wanted) -> bool:
    """Whether a number from `lead` up to, but not, `lead` + 1, in units of 10**scale, conforms. There is an upper
    bound, and no list of members."""
    low, is_low_open = _fraction((lead, scale)), False
    high, is_high_open = _fraction((lead + 1, scale)), True
    if wanted.low is not None and _fraction(wanted.low) >= low:
        low, is_low_open = _fraction(wanted.low), wanted.is_low_open
    if wanted.high is not None and _fraction(wanted.high) < high:
        high, is_high_open = _fraction(wanted.high), wanted.is_high_open
    if wanted.step is not None:
        step = _fraction(wanted.step)
        least = -(-low // step) * step
        low = least + step if least == low and is_low_open else least
        is_low_open = False
    return low < high or (low == high and not is_low_open and not is_high_open)


# -- in the exponent -------------------------------------------------------------------------------------------------


def _can_scale(number: Number, exponent: str, wanted: _Wanted) -> bool:
    """Whether the number conforms, times ten to some power whose text begins with `exponent`."""
    coefficient, own = number
    if not coefficient:
        return wanted.holds(_ZERO)
    if wanted.members is not None:
        return any(
            c == coefficient and _is_reached(exponent, e - own, e - own) and wanted.holds((c, e))
            for c, e in wanted.members
        )
    first = last = None
    if wanted.high is not None:
        if wanted.high[0] <= 0:
            return False
        last = _order(wanted.high) - _order(number)
        last -= not wanted.is_below((coefficient, own + last))
    if wanted.low is not None and wanted.low[0] > 0:
        first = _order(wanted.low) - _order(number)
        first += not wanted.is_above((coefficient, own + first))
    if wanted.step is not None:
        rest = wanted.step[0] // gcd(wanted.step[0], coefficient)
        tens = 0
        while rest > 1:
            common = gcd(rest, 10)
            if common == 1:
                return False
            rest //= common
            tens += 1
        least = wanted.step[1] - own + tens
        first = least if first is None else max(first, least)
    return _is_reached(exponent, first, last)


def _is_reached(text: str, first: int | None, last: int | None) -> bool:
    """Whether an exponent from `first` to `last` begins with `text`, or is it. None: without end."""
    if text.startswith("-"):
        first, last = (None if last is None else -last), (None if first is None else -first)
    digits = text.lstrip("+-")
    if text:
        first = max(first or 0, 0)
    if first is not None and last is not None and first > last:
        return False
    lead = int(digits or "0")
    if lead == 0 or last is None:
        return True
    low = high = lead
    while low <= last:
        if high >= (first or 0):
            return True
        low, high = low * 10, high * 10 + 9
    return False
