# cython: language_level=3
"""Judges numbers by the rules of a node."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport ENUM_NUMBERS, HAS_ABOVE, HAS_BELOW, HAS_MULTIPLE, INT_BOUNDS, Node, Program
from ssop_codec._scan cimport double_of


cdef inline bint int64_of(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
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


cdef inline bint keeps_bounds(
    Node* node, const uint8_t* text, uint32_t size, bint fits, int64_t value
) except? -1:
    """Whether the number is surely within its bounds, whose type fits: what most numbers are asked."""
    cdef uint32_t flags = node.flags
    if flags & ENUM_NUMBERS:
        return False
    if fits and flags & INT_BOUNDS:
        return (
            node.minimum <= value <= node.maximum
            and not (flags & HAS_ABOVE and value <= node.exclusive_minimum)
            and not (flags & HAS_BELOW and value >= node.exclusive_maximum)
            and not (flags & HAS_MULTIPLE and value % node.multiple_of)
        )
    # The double nearest to the number lies strictly between the bounds; then so does the number.
    return not flags & HAS_MULTIPLE and node.low < double_of(text, size) < node.high


cdef str broken_number(
    Program program, Node* node, const uint8_t* text, uint32_t size, bint is_integer_text, bint fits, int64_t value
)


cdef tuple broken_prefix(Program program, Node* node, const uint8_t* text, uint32_t size, int state)
