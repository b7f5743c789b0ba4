from ssop_router.job cimport Job


cpdef charge(Job job, bint is_generated)


cpdef count(Job job, bint is_generated)


cdef _add(usage, more)


cpdef judge(Job job)


cdef _find_fault(Job job)
