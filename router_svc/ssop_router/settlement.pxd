cpdef charge(job, bint is_generated)


cpdef count(job, bint is_generated)


cdef _add(usage, more)


cpdef judge(job)


cdef _find_fault(job)
