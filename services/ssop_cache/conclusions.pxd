cimport cython

from ssop_cache.answers cimport Fresh
from ssop_cache.checks cimport check_key, check_request_id, check_ttl
from ssop_cache.core.grants cimport Grants


cdef class Conclusion:
    cdef readonly object settle
    cdef readonly bint has_commit
    cdef readonly bytes cache_key
    cdef readonly object fence
    cdef readonly bytes rest
    cdef readonly bint is_complete
    cdef readonly object ttl_ms
    cdef readonly str model
    cdef readonly bint is_all
    cdef public object settled
    cdef public object committed
    cdef public bytes chunk
    cdef public bint is_granted
    cdef public bint is_unfit
    cdef public bint is_stored


cdef class Conclusions:
    cdef object _state
    cdef object _answers
    cdef object _layout
    cdef object _settings
    cdef object _limits
    cdef object _answer_ttl_ms
    cdef Py_ssize_t _max_answer_bytes
    cdef object _metrics
    cdef Grants _grants

    @cython.locals(one=Conclusion, others=list)
    cdef list _take_grants(self, str tenant, list asked)

    @cython.locals(one=Conclusion, chunk=bytes, storing=list, fresh=list)
    cdef tuple _judge_answers(self, list asked)

    @cython.locals(one=Conclusion, last=Py_ssize_t, followed=list)
    cdef list _take(self, list settling, list ending, list endings, list reply)

    cdef _count_ends(self, list outcomes)


@cython.locals(one=Conclusion, is_storing=bint, storing=list, others=list)
cdef tuple _part(asked)

cdef _check(Conclusion one)

@cython.locals(one=Conclusion, is_complete=bint, is_stored=bint, settling=list, ending=list, settlements=list, endings=list)
cdef tuple _describe(list asked)

cdef bint _is_forgotten(Conclusion one) except -1

cdef _judge(outcome, bint is_fit)

cdef _error_of(outcome)

cdef bint _is_lost(outcome)

cdef _lease_lost()
