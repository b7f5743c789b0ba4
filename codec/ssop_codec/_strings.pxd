# cython: language_level=3
"""Strings, keys included, and plain text."""

from libc.stdint cimport uint8_t, uint64_t

from ssop_codec._reader cimport Reader

cdef int begin_string(Reader reader, uint64_t offset) except -1
cdef const uint8_t* read_string(
    Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset
) except NULL
cdef int read_plain_text(Reader reader, const uint8_t* start, const uint8_t* end, uint64_t offset) except -1
cdef int flush_plain_text(Reader reader) except -1
cdef int end_plain_text(Reader reader, bint is_cut) except -1
