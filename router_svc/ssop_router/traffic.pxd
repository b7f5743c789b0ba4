from ssop_router.core.counts cimport CountWindow
from ssop_router.core.latency cimport LatencyWindow


cdef class Traffic:
    cdef object _clock_ms
    cdef CountWindow _ended
    cdef LatencyWindow _first_field

    cpdef record(self, job, outcome)
