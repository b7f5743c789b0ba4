# cython: language_level=3
"""Numbers and literals that lie whole in the input, for the reader of whole tokens."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._frame_writer cimport write_bool, write_double, write_int, write_null
from ssop_codec._program cimport (
    ENUM_NUMBERS,
    HAS_ABOVE,
    HAS_BELOW,
    HAS_BOUNDS,
    HAS_MULTIPLE,
    INT_BOUNDS,
    IS_DOUBLE,
    NO_FALSE,
    NO_TRUE,
    Node,
)
from ssop_codec._reader cimport Reader
from ssop_codec._scan cimport is_blank, is_digit, ssop_powers, ssop_unlikely
from ssop_codec._states cimport BOOLEAN, NULL_TYPE, NUMBER

cdef enum:
    EXACT = 1000000000000000    # doubles hold what is less, and powers of ten up to 22, exactly


cdef inline bint ends_value(uint8_t c) noexcept nogil:
    return c == 0x2C or c == 0x7D or c == 0x5D or is_blank(c)


cdef inline const uint8_t* take_number(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Read and send a number of few digits without an exponent, with the byte behind it in sight."""
    cdef Node* node = reader.node
    cdef const uint8_t* p = start
    cdef const uint8_t* first
    cdef const uint8_t* point
    cdef bint is_negative = p[0] == 0x2D
    cdef uint64_t digits = 0
    cdef int64_t value
    cdef double number
    p += is_negative
    first = p
    while p < end and is_digit(p[0]):
        digits = digits * 10 + <uint8_t>(p[0] - 0x30)
        p += 1
    if ssop_unlikely(p == end or p == first or p - first > 18 or (first[0] == 0x30 and p - first > 1)):
        return NULL
    if p[0] == 0x2E:
        point = p
        p += 1
        while p < end and is_digit(p[0]):
            digits = digits * 10 + <uint8_t>(p[0] - 0x30)
            p += 1
        if p == end or p == point + 1 or p - first > 19 or digits >= EXACT or not node.types & NUMBER:
            return NULL
        number = <double>digits / ssop_powers[p - point - 1]
        if is_negative:
            number = -number
        if node.flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE):
            if node.flags & (ENUM_NUMBERS | HAS_MULTIPLE) or not node.low < number < node.high:
                return NULL
        if not ends_value(p[0]) or <uint64_t>(p - start) > reader.caps.number_bytes:
            return NULL
        return p if write_double(reader.writer, &reader.place, number) else NULL
    if not ends_value(p[0]) or <uint64_t>(p - start) > reader.caps.number_bytes or (is_negative and not digits):
        return NULL
    value = -<int64_t>digits if is_negative else <int64_t>digits
    if node.flags & (ENUM_NUMBERS | HAS_BOUNDS | HAS_MULTIPLE) and not is_within(node, value):
        return NULL
    if node.flags & IS_DOUBLE:
        if digits >= EXACT:
            return NULL
        return p if write_double(reader.writer, &reader.place, <double>value) else NULL
    return p if write_int(reader.writer, &reader.place, value) else NULL


cdef inline bint is_within(const Node* node, int64_t value) noexcept nogil:
    """Whether an integer is surely within its bounds."""
    cdef uint32_t flags = node.flags
    if flags & ENUM_NUMBERS:
        return False
    if flags & INT_BOUNDS:
        return (
            node.minimum <= value <= node.maximum
            and not (flags & HAS_ABOVE and value <= node.exclusive_minimum)
            and not (flags & HAS_BELOW and value >= node.exclusive_maximum)
            and not (flags & HAS_MULTIPLE and value % node.multiple_of)
        )
    return not flags & HAS_MULTIPLE and node.low < <double>value < node.high


cdef inline const uint8_t* take_literal(Reader reader, const uint8_t* start, const uint8_t* end) noexcept nogil:
    cdef Node* node = reader.node
    if end - start < 5:
        return NULL
    if start[0] == 0x74 and start[1] == 0x72 and start[2] == 0x75 and start[3] == 0x65:
        if not node.types & BOOLEAN or node.flags & NO_TRUE:
            return NULL
        return start + 4 if write_bool(reader.writer, &reader.place, True) else NULL
    if start[0] == 0x66 and start[1] == 0x61 and start[2] == 0x6C and start[3] == 0x73 and start[4] == 0x65:
        if not node.types & BOOLEAN or node.flags & NO_FALSE:
            return NULL
        return start + 5 if write_bool(reader.writer, &reader.place, False) else NULL
    if start[0] == 0x6E and start[1] == 0x75 and start[2] == 0x6C and start[3] == 0x6C:
        if not node.types & NULL_TYPE:
            return NULL
        return start + 4 if write_null(reader.writer, &reader.place) else NULL
    return NULL
