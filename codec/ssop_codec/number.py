"""Exact arithmetic on the texts of JSON numbers.

A number is `(coefficient, exponent)`, that is coefficient * 10**exponent, without trailing zeros in the
coefficient, so that equal numbers are equal tuples. Nothing here ever builds 10**exponent for an
exponent that a peer chose.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

Number: TypeAlias = tuple[int, int]


def parse_number(text: bytes) -> Number:
    """`text` is a valid JSON number."""
    mantissa, _, exponent_text = text.lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    return normal(int(whole + fraction), (int(exponent_text) if exponent_text else 0) - len(fraction))


def normal(coefficient: int, exponent: int) -> Number:
    """Move trailing zeros of the coefficient into the exponent."""
    if coefficient == 0:
        return 0, 0
    digits = str(abs(coefficient))
    stripped = digits.rstrip("0")
    zeros = len(digits) - len(stripped)
    value = int(stripped)
    return (value if coefficient > 0 else -value), exponent + zeros


def from_python(value: int | float | Decimal) -> Number:
    """A number of a schema; a float stands for its shortest text."""
    if isinstance(value, int):
        return normal(value, 0)
    return parse_number(str(value if isinstance(value, Decimal) else repr(value)).encode())


def is_integer(number: Number) -> bool:
    """A number without fraction, as JSON Schema counts: 1.0 and 1e2 are integers."""
    return number[1] >= 0


def compare(a: Number, b: Number) -> int:
    """-1, 0 or 1."""
    if a == b:
        return 0
    sign_a, sign_b = (a[0] > 0) - (a[0] < 0), (b[0] > 0) - (b[0] < 0)
    if sign_a != sign_b:
        return -1 if sign_a < sign_b else 1
    digits_a, digits_b = str(abs(a[0])), str(abs(b[0]))
    order_a, order_b = len(digits_a) + a[1], len(digits_b) + b[1]
    if order_a != order_b:
        return sign_a if order_a > order_b else -sign_a
    width = max(len(digits_a), len(digits_b))
    return sign_a if digits_a.ljust(width, "0") > digits_b.ljust(width, "0") else -sign_a


def is_multiple(number: Number, step: Number) -> bool:
    """Whether `number` is a whole multiple of `step`, which is above 0."""
    if number[0] == 0:
        return True
    shift = number[1] - step[1]
    if shift < 0:
        # Ten to some power would have to divide a coefficient without trailing zeros.
        return False
    return number[0] * pow(10, shift, step[0]) % step[0] == 0


def to_int64(number: Number) -> int | None:
    """The integer, or None where it lies beyond int64. `number` is an integer."""
    coefficient, exponent = number
    if exponent > 18:
        return None
    value = coefficient * 10**exponent
    return value if -(2**63) <= value < 2**63 else None
