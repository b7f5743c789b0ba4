from ssop_router.conversations cimport Conversations as _Conversations
from ssop_router.job cimport Intake, Job
from ssop_router.nodes cimport Nodes as _Nodes
from ssop_router.profiles cimport Regimes as _Regimes


cdef class Preparation:
    cdef readonly object scorer
    cdef object _recorder
    cdef readonly object schemas
    cdef _Nodes _nodes
    cdef object _max_prompt_bytes
    cdef long long _max_timeout_ms
    cdef object _continue_max_bytes
    cdef double _margin_s
    cdef _Regimes _regimes
    cdef object _metrics
    cdef object _sign
    cdef object _clock_ms
    cdef object _rng
    cdef _Conversations _conversations
    cdef object _cache_rule
    cdef tuple _cache_first
    cdef str _prefix
    cdef long long _named

    cdef _read_settings(self)

    cpdef Job prepare(self, Intake intake)

    cdef str _name_request(self)

    cpdef _decide(self, features)

    cpdef explain(self, features, decision)

    cdef _describe(self, features, decision, Intake intake)

    cpdef remember(self, Job job)

    cdef bint _is_cache_first(self, now_ms) except -1

    cdef double _shorten(self, double timeout_s) except -1
