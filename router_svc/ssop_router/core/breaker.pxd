from ssop_router.core.latency cimport LatencyWindow


cdef class Breaker:
    cdef object _settings
    cdef object _rng
    cdef LatencyWindow _window
    cdef object _recent
    cdef readonly object failures_in_a_row
    cdef object _failed_after_ms
    cdef object _slow_since_ms
    cdef object _checked_ms
    cdef object _ooms
    cdef object _good_probes
    cdef object _probe_due_ms
    cdef object _probe_ends_ms
    cdef object _returned_ms
    cdef object _backoff_ms
    cdef object _failed_ms
    cdef object _hinted_until_ms
    cdef bint _is_hint_untried
    cdef object _hint_tried_ms
    cdef readonly object phase
    cdef readonly object trip

    cpdef succeed(self, latency_ms, now_ms)

    cdef _settle(self, now_ms)

    cdef _propose(self, trip)

    cdef _forget(self)
