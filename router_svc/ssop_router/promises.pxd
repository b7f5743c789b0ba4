cdef class Promises:
    cdef double _wait_s
    cdef readonly dict _asking
    cdef bint _is_tried
    cdef bint _is_given_up
    cdef object _is_back
    cdef Py_ssize_t _waiting

    cdef _tell(self)
