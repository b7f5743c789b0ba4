cdef class Outcome:
    cdef readonly object stop
    cdef readonly object input_tokens
    cdef readonly object output_tokens
    cdef readonly object cached_input_tokens
    cdef readonly bint is_estimated
