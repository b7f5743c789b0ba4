# cython: language_level=3
"""Judges numbers by the rules of a node."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from ssop_codec._program cimport Node, Program

cdef bint int64_of(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept
cdef str broken_number(
    Program program, Node* node, const uint8_t* text, uint32_t size, bint is_integer_text, bint fits, int64_t value
)
