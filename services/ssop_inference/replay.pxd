cdef class ReplayBackend:
    cdef readonly object name
    cdef readonly object control
    cdef readonly object capabilities
    cdef readonly object meter
    cdef readonly object clock
    cdef readonly object wheel
    cdef readonly object queue
    cdef object _recording
    cdef object _turns

    cpdef generate(self, request)

    cpdef choose(self, messages)


cdef class ReplayGeneration:
    cdef ReplayBackend _backend
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
