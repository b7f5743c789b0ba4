# cython: language_level=3
"""Strings under the judge. What returns a bint says whether a violation was found."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport Judge, Stage, Trial
from ssop_codec._scan cimport Points

cdef uint32_t judge_string_bytes(Judge judge, const uint8_t* data, uint32_t size) except? 0xFFFFFFFF
cdef bint judge_points(Judge judge, const Points* points, uint32_t count) except -1
cdef bint judge_string_end(Judge judge, uint64_t end) except -1
cdef bint take_string_byte(Judge judge, Stage* stage, uint8_t c) except -1
cdef int end_string_trial(Judge judge, Trial* trial) except -1
