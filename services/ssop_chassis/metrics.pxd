cimport cython

from ssop_chassis.tallies cimport Count, Distribution, Level


cdef class CallMetrics:
    cdef object _started
    cdef Level _in_flight
    cdef object _duration
    cdef dict _starts
    cdef dict _ends

    @cython.locals(started=Count)
    cpdef start(self, method)

    @cython.locals(ended=Distribution)
    cpdef finish(self, method, code, double duration_s)
