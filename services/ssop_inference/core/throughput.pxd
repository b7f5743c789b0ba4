cdef class ThroughputMeter:
    cdef Py_ssize_t _running
    cdef Py_ssize_t _tokens
    cdef double _since_s
    cdef double _busy_s
    cdef readonly double tokens_per_s

    cpdef start(self, double now_s)

    cpdef stop(self, double now_s)

    cpdef add(self, Py_ssize_t tokens, double now_s)

    cdef _settle(self, double now_s)
