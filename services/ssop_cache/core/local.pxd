cimport cython


cdef class LocalAnswer:
    cdef readonly object fence
    cdef readonly object stored_ms
    cdef readonly object expires_ms
    cdef readonly bytes record
    cdef readonly Py_ssize_t size_bytes


cdef tuple _fields(LocalAnswer answer)


cdef class LocalAnswers:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t evictions
    cdef object _entries
    cdef dict _tenants
    cdef object _floors

    cpdef LocalAnswer peek(self, tuple name)

    @cython.locals(found=LocalAnswer)
    cpdef LocalAnswer find(self, tuple name, now_ms, max_age_ms=*)

    @cython.locals(before=LocalAnswer, keys=set)
    cpdef list put(self, tuple name, LocalAnswer answer)

    @cython.locals(found=LocalAnswer)
    cpdef bint drop(self, tuple name, below_fence)

    cpdef list flush(self, str tag, floor)

    cpdef clear(self)

    @cython.locals(found=LocalAnswer, keys=set)
    cdef _remove(self, tuple name)


cpdef bytes encode_name(tuple name)

cpdef bytes encode_local(LocalAnswer answer)

cdef object _sum(bytes fields, bytes record)
