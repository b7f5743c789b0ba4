# cython: language_level=3
"""Strings and keys under the judge. What returns a bint says whether a violation was found."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport Judge

cdef uint32_t judge_string_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF
cdef bint judge_string_end(Judge judge, uint64_t end) except -1
cdef bint judge_key_begin(Judge judge, uint32_t depth) except -1
cdef uint32_t judge_key_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF
cdef bint judge_key_end(Judge judge, const uint8_t* key, uint32_t size) except -1
