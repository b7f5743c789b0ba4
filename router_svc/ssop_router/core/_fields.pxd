# cython: language_level=3
"""Fields of protobuf messages, written in the order of their numbers, for inlining. What is absent is not written."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._wire cimport put_varint, varint_size

cdef enum:
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


# Sizes are those of fields below 16, whose tag is one byte.

cdef inline Py_ssize_t number_size(uint64_t value) noexcept nogil:
    return 1 + varint_size(value) if value else 0


cdef inline Py_ssize_t bytes_size(Py_ssize_t size) noexcept nogil:
    return 1 + varint_size(<uint64_t>size) + size


cdef inline uint8_t *put_number(uint8_t *at, uint64_t field, uint64_t value) noexcept nogil:
    return put_varint(put_varint(at, field << 3 | VARINT), value) if value else at


cdef inline uint8_t *put_bytes(uint8_t *at, uint64_t field, const void *data, Py_ssize_t size) noexcept nogil:
    """Writes it though it is empty."""
    at = put_varint(put_varint(at, field << 3 | BYTES), <uint64_t>size)
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t *put_double(uint8_t *at, uint64_t field, double value) noexcept nogil:
    """Writes it though it is zero."""
    cdef uint64_t bits = 0
    cdef int byte
    memcpy(&bits, &value, 8)
    at = put_varint(at, field << 3 | FIXED64)
    for byte in range(8):
        at[byte] = <uint8_t>(bits >> 8 * byte)
    return at + 8


cdef inline uint8_t *put_float(uint8_t *at, uint64_t field, float value) noexcept nogil:
    """Writes it though it is zero."""
    cdef uint32_t bits = 0
    cdef int byte
    memcpy(&bits, &value, 4)
    at = put_varint(at, field << 3 | FIXED32)
    for byte in range(4):
        at[byte] = <uint8_t>(bits >> 8 * byte)
    return at + 4
