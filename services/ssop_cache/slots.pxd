cdef class Slots:
    cdef Py_ssize_t _free
    cdef object _waiting

    cpdef bint take(self)

    cpdef give(self)

    cdef _forget(self, future)
