# cython: language_level=3
"""Varints of the protobuf wire, for inlining."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "ssop_scan.h" nogil:
    uint32_t ssop_varint_bytes(uint64_t value)


cdef inline uint8_t* put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    """Writes at most 10 bytes; returns the place behind them."""
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


cdef inline uint64_t varint_size(uint64_t value) noexcept nogil:
    return ssop_varint_bytes(value)


cdef inline int get_varint(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """0 and the value, with `at` moved behind it; -1 where it is cut or longer than 64 bits."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t result = 0
    cdef int shift = 0
    if p < end and p[0] < 0x80:
        at[0] = p + 1
        value[0] = p[0]
        return 0
    while p < end and shift < 64:
        if shift == 63 and p[0] > 1:
            return -1
        result |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = result
            return 0
        p += 1
        shift += 7
    return -1
