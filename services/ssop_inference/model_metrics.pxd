cimport cython

from ssop_chassis.tallies cimport Count, Distribution
from ssop_inference.core.tokens cimport Outcome


cdef class ModelMetrics:
    cdef Distribution _first_token
    cdef Distribution _first_field
    cdef Distribution _per_token
    cdef Distribution _queue
    cdef Distribution _input_tokens
    cdef Distribution _output_tokens
    cdef Count _cached
    cdef Count _estimated
    cdef Count _frames
    cdef object _make_end
    cdef object _make_mode
    cdef object _make_violations
    cdef dict _ends
    cdef dict _modes

    @cython.locals(count=Count)
    cpdef observe_start(self, mode, double queue_s)

    cpdef observe_first_token(self, double after_s)

    cpdef observe_first_field(self, double after_s)

    cpdef observe_violation(self, mode)

    cpdef count_frames(self, double frames)

    @cython.locals(end=Distribution, output_tokens=cython.longlong)
    cpdef observe_end(self, str outcome, Outcome usage, double total_s, double decode_s)
