cdef class Lines:
    cdef object _pool
    cdef Py_ssize_t _count
    cdef list _waiting
    cdef bint _is_due
    cdef object _loop
    cdef dict _wires
    cdef set _closing

    cpdef send(self, tuple words)

    cpdef drop_silent(self)

    cpdef drop_idle(self)

    cpdef forget(self, wire)

    cpdef watch(self, task)

    cdef list _taking(self)

    cdef _open(self)


cdef _give(future, reply)
