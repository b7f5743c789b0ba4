from ssop_router.delivery cimport Delivery
from ssop_router.job cimport Job
from ssop_router.nodes cimport Nodes as _Nodes
from ssop_router.profiles cimport Regimes as _Regimes


cdef class Generator:
    cdef _Nodes _nodes
    cdef _Regimes _regimes
    cdef object _metrics
    cdef object _limits
    cdef object _similar
    cdef object _clock_ms
    cdef object _rng
    cdef double _first_field_s
    cdef long long _stall_timeout_ms
    cdef double _continue_wait_s
    cdef double _margin_s

    cdef _begin_succession(self, Job job)

    cpdef note_failure(self, Job job, target, attempt, error)

    cdef _interrupt(self, Job job, error)


cdef bytes _make_request(Job job, target, attempt)


cdef _blame(error, Job job)
