cimport cython

from ssop_cache.checks cimport check_key, check_lease, check_request_id, check_share
from ssop_cache.core.grants cimport Grants


cdef class Admitting:
    cdef readonly str request_id
    cdef readonly bytes cache_key
    cdef readonly object reserve_tokens
    cdef readonly object lease_ms
    cdef readonly object max_age_ms
    cdef readonly bint no_lease
    cdef readonly object rate_share
    cdef readonly object reservation_ms
    cdef public object error
    cdef public object outcome
    cdef public object answer
    cdef public object fence
    cdef public object budget_left
    cdef public object seen_fence


cdef class Admissions:
    cdef object _state
    cdef object _answers
    cdef object _layout
    cdef object _limits
    cdef Grants _grants
    cdef object _metrics
    cdef object _told
    cdef readonly bytes limits

    cpdef describe(self, Admitting one)

    @cython.locals(one=Admitting, again=list)
    cdef list _take(self, str tenant, limits, list asked, tuple said, list looked_up)

    cdef _keep_grants(self, str tenant, list asked, list admissions, double until_s)

    cdef _refuse_to_wait(self)

    cdef _refuse(self, str tenant, admission, limits)


@cython.locals(one=Admitting, alike=dict, terms=tuple, some=list)
cdef dict _group(asked)

cdef tuple _wanted(Admitting one)

@cython.locals(is_found=bint, wants_lease=bint)
cdef tuple _describe(Admitting one, answer)

cpdef describe_answer(answer)

cdef _check_terms(tuple terms)
