from ssop_router.job cimport Job


cdef class Trials:
    cdef object _regimes
    cdef object _metrics
    cdef object _clock_ms
    cdef dict _arms

    cpdef find(self, tier)

    cpdef end(self, Job job)

    cpdef record(self, canary, str arm, str verdict, first_field_ms)
