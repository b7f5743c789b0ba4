cimport cython


@cython.locals(size_bytes=Py_ssize_t, chunk=bytes)
cpdef Py_ssize_t size_of(chunks) except -1


cpdef list join_chunks(list chunks, Py_ssize_t most_bytes)


cdef class SplitCounter:
    cdef readonly Py_ssize_t values
    cdef readonly Py_ssize_t split_values
    cdef bint _is_in_parts

    cpdef take(self, chunk)


cdef class BufferEstimate:
    cdef readonly Py_ssize_t buffer_bytes
    cdef Py_ssize_t _values
    cdef Py_ssize_t _split_values

    cpdef observe(self, answer)
