# cython: language_level=3
"""Numbers."""

from libc.stdint cimport uint8_t, uint64_t

from ssop_codec._reader cimport Reader

cdef int begin_number(Reader reader, uint8_t c, uint64_t offset) except -1
cdef const uint8_t* read_number(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) except NULL
cdef int end_number(Reader reader, uint64_t offset) except -1
cdef bint judge_prefix(Reader reader) except -1
cdef bint may_end(int number_state) noexcept
