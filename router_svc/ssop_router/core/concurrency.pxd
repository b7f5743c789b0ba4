cdef class Window:
    cdef object _settings
    cdef double _limit
    cdef object _changed_ms

    cpdef limit(self, now_ms)

    cpdef refuse(self, in_flight, now_ms)

    cpdef serve(self, in_flight, now_ms)

    cdef _recover(self, now_ms)
