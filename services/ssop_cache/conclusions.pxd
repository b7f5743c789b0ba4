from ssop_cache.core.grants cimport Grants


cdef class Conclusion:
    cdef readonly object settle
    cdef readonly object commit
    cdef public object settled
    cdef public object committed
    cdef public object chunk
    cdef public bint is_granted
    cdef public bint is_unfit
    cdef public bint is_stored


cdef class Conclusions:
    cdef object _state
    cdef object _answers
    cdef object _layout
    cdef object _settings
    cdef object _limits
    cdef object _metrics
    cdef Grants _grants

    cdef _judge_answer(self, Conclusion one, commit)

    cdef _count_ends(self, list outcomes)


cdef _check(Conclusion asked)

cdef _judge(outcome, bint is_fit)

cdef _error_of(outcome)

cdef bint _is_lost(outcome)

cdef _lease_lost()
