cdef class ReplayGeneration:
    cdef object _backend
    cdef object _clock
    cdef object _request
    cdef object _recorded
    cdef object _slot
    cdef object _waiting
    cdef object _stop
    cdef bint _is_cancelled
    cdef Py_ssize_t _next
    cdef Py_ssize_t _input_tokens
    cdef double _started_s
    cdef readonly double queue_s

    cpdef cancel(self)
