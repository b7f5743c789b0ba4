cdef class Delivery:
    cdef readonly object mode
    cdef readonly double deadline_s
    cdef readonly bint has_lost_constraint
    cdef object _metrics
    cdef object _clock
    cdef object _outbox
    cdef object _writer
    cdef object _buffer
    cdef double _started_s
    cdef double _first_token_s
    cdef bint _has_first_field
    cdef bint _tells_usage

    cdef _end(self, ending)

    cdef _natural_reasons(self, generation)

    cdef _observe_end(self, str verdict, usage)
