# cython: language_level=3
"""Whole tokens, read at once."""

from libc.stdint cimport uint8_t, uint64_t

from ssop_codec._reader cimport Reader

cdef enum:
    # A shorter rest of the input seldom holds a whole token.
    TOKEN_BYTES = 16

cdef const uint8_t* read_tokens(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) noexcept nogil
