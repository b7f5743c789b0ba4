# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Judges numbers by the rules of a node.

Most are judged in C: an integer within int64 by integers, another by the double nearest to it where that lies
strictly between the bounds. What is left is judged in `checks`, with whole decimals.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport (
    ENUM_NUMBERS,
    HAS_ABOVE,
    HAS_BELOW,
    HAS_BOUNDS,
    HAS_MULTIPLE,
    INT_BOUNDS,
    Node,
    Program,
)
from ssop_codec._scan cimport double_of
from ssop_codec._states cimport NUMBER

from .checks import broken_number_rule


cdef bint int64_of(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept:
    """Whether the integer fits, and its value."""
    cdef bint negative = p[0] == 0x2D
    cdef uint64_t magnitude = 0
    if negative:
        p += 1
    if end - p > 19:
        return False
    while p < end:
        magnitude = magnitude * 10 + (p[0] - 0x30)
        p += 1
    if magnitude > <uint64_t>INT64_MAX + negative:
        return False
    value[0] = <int64_t>(0 - magnitude) if negative else <int64_t>magnitude
    return True


cdef str broken_number(
    Program program, Node* node, const uint8_t* text, uint32_t size, bint is_integer_text, bint fits, int64_t value
):
    """The first keyword that the number breaks, or None. `text` has a zero byte behind it; `fits`: it is an integer
    text with the value `value`."""
    cdef uint32_t flags = node.flags
    cdef bint is_exact = flags & (ENUM_NUMBERS | HAS_MULTIPLE) != 0
    if is_integer_text or node.types & NUMBER:
        if not flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE):
            return None
        if fits and flags & INT_BOUNDS and not flags & ENUM_NUMBERS:
            if value < node.minimum:
                return "minimum"
            if value > node.maximum:
                return "maximum"
            if flags & HAS_ABOVE and value <= node.exclusive_minimum:
                return "exclusiveMinimum"
            if flags & HAS_BELOW and value >= node.exclusive_maximum:
                return "exclusiveMaximum"
            if flags & HAS_MULTIPLE and value % node.multiple_of:
                return "multipleOf"
            return None
        # The double nearest to the number lies strictly between the bounds; then so does the number.
        if not is_exact and node.low < double_of(text, size) < node.high:
            return None
    keyword = broken_number_rule(program.rules[node - program.nodes], PyBytes_FromStringAndSize(<char*>text, size))
    return keyword or None
