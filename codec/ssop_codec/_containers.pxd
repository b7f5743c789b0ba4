# cython: language_level=3
"""Objects and arrays that are open: their members, and the place of each."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._reader cimport Reader

cdef int open_container(Reader reader, bint is_array, uint64_t offset) except -1
cdef int begin_item(Reader reader, uint64_t offset) except -1
cdef int close_container(Reader reader, uint64_t offset) except -1
cdef int end_scalar(Reader reader, uint64_t end) except -1
cdef int begin_key(Reader reader, uint64_t offset) except -1
cdef int read_key(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1
cdef int end_key(Reader reader, uint64_t offset) except -1
