cdef class Circuit:
    cdef readonly Py_ssize_t failures
    cdef readonly bint is_open
    cdef readonly double opened_s

    cpdef succeed(self)

    cpdef bint fail(self, double now_s, bint is_gone) except -1

    cpdef double open_s(self, double now_s) except? -1

    cpdef close(self)
