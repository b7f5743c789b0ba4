cpdef describe_reasons(decision)


cdef _shorten(value)
