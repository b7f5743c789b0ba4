# cython: language_level=3
"""Judges the `pattern` of a string while it is read. All but `judge_plain` fail the reader where no text matches any more."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._reader cimport Reader

cdef int begin_pattern(Reader reader, uint64_t offset) except -1
cdef uint32_t judge_plain(Reader reader, const uint8_t* data, uint32_t size) except? 0
cdef int fail_pattern(Reader reader, uint64_t offset) except -1
cdef int judge_utf8(Reader reader, uint8_t c, uint64_t offset) except -1
cdef int judge_point(Reader reader, uint32_t point, uint64_t offset) except -1
cdef int judge_escape(Reader reader, uint64_t offset) except -1
cdef int judge_unit(Reader reader, uint64_t offset) except -1
cdef int end_pattern(Reader reader, uint64_t offset) except -1
