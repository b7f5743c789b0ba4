# cython: language_level=3
"""What compiled code above a relay needs of it."""

from libc.stdint cimport uint64_t

from ssop_codec._survey cimport Course


cdef class Sends:
    cdef readonly Py_ssize_t frames, size_bytes, left_out
    cdef readonly list chunks
    cdef Py_ssize_t most_frames, noted_frames

    cpdef note(self, long long at_us, Py_ssize_t size_bytes, Py_ssize_t frames, bytes heads)
    cpdef count(self, Py_ssize_t frames, Py_ssize_t size_bytes)
    cdef int put(self, long long at_us, Py_ssize_t size_bytes, Py_ssize_t frames, bytes heads) except -1


cdef class Backlog:
    cdef public bint is_urgent
    cdef readonly bint is_closed
    cdef readonly Py_ssize_t size_bytes, total_bytes
    cdef Py_ssize_t quiet_bytes, most_bytes
    cdef list chunks

    cdef bint takes(self, Py_ssize_t size_bytes)
    cdef int put(self, bytes chunk) except -1


cdef class Way:
    cdef object write
    cdef readonly uint64_t stream, dropped
    cdef public bint is_shut

    cdef object pass_on(self, bytes chunk, uint64_t frames)


cdef class Relay:
    cdef Course course
    cdef Sends sends
    cdef Way way
    cdef Backlog backlog
    cdef object clock
    cdef double started_s
    cdef uint64_t stream
    cdef public bint is_passing
    cdef public object patience, stall_s

    cpdef object look(self, bytes chunk)
    cpdef object hold(self, pending)
