# cython: language_level=3
"""A frame that was read."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    KIND_HEADER = 1
    KIND_VALUE = 2
    KIND_PART = 3
    KIND_CLOSE = 4
    KIND_END = 5
    FIRST_MESH_KIND = 16


cdef class Frame:
    cdef uint64_t number
    cdef readonly int kind
    cdef readonly uint32_t node
    cdef readonly uint32_t document
    cdef readonly uint32_t parts
    cdef readonly object value
    cdef readonly object size
    cdef readonly object header
    cdef readonly object end
    cdef readonly object mesh
    cdef readonly tuple tokens
    cdef dict completed
    cdef bytes chunk
    cdef Py_ssize_t begin
    cdef Py_ssize_t size_bytes
    cdef list steps
    cdef uint32_t content
    cdef str pointer


cdef Frame read_frame(const uint8_t* at, const uint8_t* end)
cdef bint content_fits(int kind, uint32_t content) noexcept
