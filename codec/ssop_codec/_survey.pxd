# cython: language_level=3
"""What a relay in C needs of surveys and courses."""

from libc.stdint cimport uint64_t


cdef class Survey:
    cdef readonly uint64_t kinds
    cdef readonly Py_ssize_t frames
    cdef readonly Py_ssize_t documents
    cdef readonly Py_ssize_t values
    cdef readonly bint is_clean
    cdef readonly bint is_plain
    cdef readonly bint is_row
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly bytes heads


cdef class Course:
    cdef public uint64_t last_seq
    cdef readonly bint is_kept
    cdef Py_ssize_t limit_bytes, size_bytes
    cdef list chunks

    cdef Survey next_fields(self, bytes chunk)
    cdef int keep(self, bytes chunk) except -1
