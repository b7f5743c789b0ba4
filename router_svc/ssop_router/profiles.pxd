cdef class Regimes:
    cdef object _threshold_of
    cdef object _wall_ms
    cdef object _profiles
    cdef object _own
    cdef dict _of
    cdef object _active

    cpdef take(self, settings)

    cpdef now(self)
