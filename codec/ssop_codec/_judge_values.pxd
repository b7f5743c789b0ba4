# cython: language_level=3
"""Values under the judge. What returns a bint says whether a violation was found."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._judge cimport Judge
from ssop_codec._program cimport Node

cdef enum:
    NUMBER_END = 0xFFFFFFFE     # in place of bytes of a number: its end

cdef bint judge_begin(Judge judge, Node* node, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset) except -1
cdef uint32_t judge_open_number(
    Judge judge, const uint8_t* text, uint32_t size, int state, uint32_t before
) except? 0xFFFFFFFF
cdef uint32_t judge_number(
    Judge judge,
    const uint8_t* text,
    uint32_t size,
    int state,
    bint is_integer_text,
    bint fits,
    int64_t value,
    uint64_t end,
) except? 0xFFFFFFFF
cdef bint judge_literal(Judge judge, uint64_t end) except -1
cdef bint judge_close(Judge judge, uint32_t depth, uint64_t end) except -1
cdef bint start_trials(Judge judge, uint32_t depth, uint32_t wanted, uint8_t c, uint64_t offset, bint is_item) except -1
cdef bint end_trials(Judge judge, uint32_t depth, uint64_t end) except -1
