from ssop_inference.model_metrics cimport ModelMetrics
from ssop_inference.outbox cimport Outbox


cdef class Delivery:
    cdef readonly object mode
    cdef readonly double deadline_s
    cdef readonly bint has_lost_constraint
    cdef ModelMetrics _metrics
    cdef object _clock
    cdef Outbox _outbox
    cdef object _writer
    cdef object _buffer
    cdef double _started_s
    cdef double _first_token_s
    cdef bint _has_first_field
    cdef bint _tells_usage

    cdef _end(self, ending)

    cdef bint _take(self, tokens, generation) except -1

    cdef _natural_reasons(self, generation)

    cdef _observe_end(self, str verdict, usage)
