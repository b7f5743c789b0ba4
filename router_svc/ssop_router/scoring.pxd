cdef class Scorer:
    cdef object _model
    cdef object _absent
    cdef object _metrics
    cdef long long _timeout_ns
    cdef object _clock_ns
    cdef Py_ssize_t _overruns
    cdef long long _ask_again_ns
    cdef dict _known


cdef _ask(model, text)


cdef bint _is_complexity(found)
