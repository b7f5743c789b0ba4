# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Judges numbers by the rules of a node.

Most are judged in C: an integer within int64 by integers, another by the double nearest to it where that lies
strictly between the bounds. What is left is judged in `checks`, with whole decimals.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t

from ssop_codec._program cimport (
    ENUM_NUMBERS,
    HAS_ABOVE,
    HAS_BELOW,
    HAS_BOUNDS,
    HAS_MULTIPLE,
    INT_BOUNDS,
    IS_STRICT,
    Node,
    Program,
)
from ssop_codec._states cimport N_E, N_MINUS, N_WHOLE, N_ZERO, NUMBER

from .checks import broken_number_rule
from .number_prefix import first_break


# Bounds beyond are judged slowly.
cdef int64_t FAR = 9000000000000000000


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


cdef tuple broken_prefix(Program program, Node* node, const uint8_t* text, uint32_t size, int state):
    """How many bytes of an open number break a rule whatever follows, and the keyword; None: it can still conform.
    `state` is the number state behind the text."""
    if _is_open(node, text, size, state):
        return None
    found = first_break(program.rules[node - program.nodes], PyBytes_FromStringAndSize(<char*>text, size))
    return found if found[0] else None


cdef bint _is_open(Node* node, const uint8_t* text, uint32_t size, int state) noexcept:
    """Whether the number can surely still conform: so it is with nearly all."""
    cdef uint32_t flags = node.flags
    cdef bint is_negative = text[0] == 0x2D
    if state >= N_E:
        return bool(node.types & NUMBER) and not flags & (HAS_BOUNDS | ENUM_NUMBERS | HAS_MULTIPLE)
    if flags & IS_STRICT and (state > N_WHOLE or state == N_ZERO):
        return False
    if flags & ENUM_NUMBERS:
        return False
    if not flags & (HAS_BOUNDS | HAS_MULTIPLE):
        return True
    # Away from 0 there is no end, or towards 0: digits and an exponent can lead there.
    if node.low == -INFINITY if is_negative else node.high == INFINITY:
        return True
    if flags & HAS_MULTIPLE:
        return False
    if node.types & NUMBER and (node.high >= 0 > node.low if is_negative else node.low <= 0 < node.high):
        return True
    return flags & INT_BOUNDS and state <= N_WHOLE and _can_reach(node, text, size, state)


cdef bint _can_reach(Node* node, const uint8_t* text, uint32_t size, int state) noexcept:
    """Whether more digits make an integer within the bounds, which are integers."""
    cdef int64_t low = max(node.minimum, -FAR)
    cdef int64_t high = min(node.maximum, FAR)
    cdef int64_t least = 0
    cdef int64_t most
    if node.flags & HAS_ABOVE:
        low = max(low, min(node.exclusive_minimum, FAR) + 1)
    if node.flags & HAS_BELOW:
        high = min(high, max(node.exclusive_maximum, -FAR) - 1)
    if low > high:
        return False
    if text[0] == 0x2D:
        if state == N_MINUS:
            return low <= 0
        low, high = -high, -low
        text += 1
        size -= 1
    if state == N_ZERO:
        return high >= 0
    if not int64_of(text, text + size, &least) or least > high:
        return False
    most = least
    while most < low and most < FAR // 10:
        least *= 10
        most = most * 10 + 9
    return most >= low and least <= high
