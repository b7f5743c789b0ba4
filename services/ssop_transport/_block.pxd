"""Blocks of headers, as the connection on which they come knows them."""

from libc.stdint cimport uint8_t


cdef class Block:
    cdef bytes _taken
    cdef public object meaning

    cdef bint is_informational(self) noexcept


cdef class Blocks:
    cdef char *_taken
    cdef size_t _taken_bytes, _room_bytes
    cdef dict _known
    cdef Block _latest, _other
    cdef size_t _known_bytes

    cdef void begin(self) noexcept
    cdef int add(self, const uint8_t *name, size_t name_length, const uint8_t *value, size_t value_length) except -1
    cdef Block end(self)
    cdef bint _is_again(self, Block block) noexcept
