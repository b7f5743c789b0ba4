# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Judges numbers by the rules of a node.

Most are judged in C: an integer within int64 by integers, another by the double nearest to it where that lies
strictly between the bounds. What is left is judged in `checks`, with whole decimals.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t

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
from ssop_codec._states cimport NUMBER

from .checks import broken_number_rule


cdef str broken_number(
    Program program, Node* node, const uint8_t* text, uint32_t size, bint is_integer_text, bint fits, int64_t value
):
    """The first keyword that the number breaks, or None. `text` has a zero byte behind it; `fits`: it is an integer
    text with the value `value`."""
    cdef uint32_t flags = node.flags
    if is_integer_text or node.types & NUMBER:
        if not flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE):
            return None
        if keeps_bounds(node, text, size, fits, value):
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
            return "multipleOf"
    keyword = broken_number_rule(program.rules[node - program.nodes], PyBytes_FromStringAndSize(<char*>text, size))
    return keyword or None
