cdef class Promises:
    cdef double _wait_s
    cdef readonly dict _asking
    cdef bint _is_tried
    cdef bint _is_given_up
    cdef object _is_news
    cdef long long _told
    cdef Py_ssize_t _waiting

    cdef _tell(self)

    cdef _wake(self)
