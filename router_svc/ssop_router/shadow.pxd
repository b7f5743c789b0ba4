from ssop_router.job cimport Job
from ssop_router.trials cimport Trials


cdef class Shadows:
    cdef Trials _trials
    cdef object _nodes
    cdef object _settings
    cdef object _regimes
    cdef object _background
    cdef object _clock_ms
    cdef object _rng
    cdef Py_ssize_t _running

    cpdef follow(self, Job job)

    cdef _find(self, Job job, canary)
