cimport cython

from ssop_cache.core.keys cimport TenantKeys


@cython.locals(request=str)
cdef _add_asked(TenantKeys keys, asked, list names, list args)

@cython.locals(counts=dict)
cdef _add_settlements(TenantKeys keys, settlements, tuple counters, list names, list args)

cdef str _digits(unsigned long long amount)

cdef _add_endings(TenantKeys keys, endings, list names, list args)

cdef tuple _name_answers(TenantKeys keys, asked)

cdef str _word(bint is_complete, bint is_stored)

cpdef number(value)

cpdef str word(value)

cpdef bytes data(value)

@cython.locals(counts=dict, left=list)
cpdef dict count_each(values)

cpdef list parse_admissions(list reply)
