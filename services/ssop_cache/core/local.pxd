cdef class LocalAnswers:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t evictions
    cdef object _entries
    cdef dict _tenants
    cdef object _floors

    cpdef peek(self, tuple name)

    cpdef find(self, tuple name, long long now_ms, max_age_ms=*)

    cpdef put(self, tuple name, answer)

    cpdef bint drop(self, tuple name, below_fence)

    cpdef list flush(self, str tag, floor)

    cpdef clear(self)

    cdef _remove(self, tuple name)
