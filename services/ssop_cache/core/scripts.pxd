cdef str _word(bint is_complete, bint is_stored)

cpdef number(value)

cpdef str word(value)

cpdef bytes data(value)

cpdef list parse_admissions(list reply)
