from ssop_router.core.counts cimport CountWindow
from ssop_router.core.latency cimport LatencyWindow
from ssop_router.job cimport Job


cdef class Traffic:
    cdef object _clock_ms
    cdef CountWindow _ended
    cdef LatencyWindow _first_field

    cpdef record(self, Job job, outcome)
