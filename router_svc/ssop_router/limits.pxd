cdef class Wait:
    cdef object _limits
    cdef object _number

    cpdef end(self)

    cpdef refuse(self)

    cpdef drop(self)
