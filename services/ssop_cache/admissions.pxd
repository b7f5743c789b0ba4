from ssop_cache.core.grants cimport Grants


cdef class Admitting:
    cdef readonly object request
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

    cdef _refuse_to_wait(self)

    cdef _refuse(self, str tenant, admission, limits)


cdef _let_in(Admitting one, tuple admission, answer)

cpdef describe_answer(answer)

cdef _check_terms(tuple terms)
