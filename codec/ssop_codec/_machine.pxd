# cython: language_level=3
"""The machine that a document is read by."""

from libc.stdint cimport uint8_t

from ssop_codec._reader cimport Reader

cdef int read(Reader reader, const uint8_t* start, Py_ssize_t size) except -1
cdef int end_input(Reader reader, bint is_cut) except -1
