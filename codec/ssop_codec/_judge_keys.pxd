# cython: language_level=3
"""Keys under the judge. What returns a bint says whether a violation was found."""

from libc.stdint cimport uint8_t, uint32_t

from ssop_codec._judge cimport Judge
from ssop_codec._scan cimport Points

cdef bint judge_key_begin(Judge judge, uint32_t depth) except -1
cdef uint32_t judge_key_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF
cdef bint judge_key_points(Judge judge, const Points* points, uint32_t count) except -1
cdef bint judge_key_end(Judge judge, const uint8_t* key, uint32_t size) except -1
cdef bint judge_comma(Judge judge, uint32_t depth) except -1
