cimport cython
from libc cimport math


@cython.locals(total=double)
cdef _estimate(double good, double bad)


cdef double _fade(double age_ms, double half_life_ms) except -1


cdef class Outcomes:
    cdef object _half_life_ms
    cdef object _window_ms
    cdef double _successes
    cdef double _failures
    cdef object _at_ms
    cdef object _view
    cdef object _windows
    cdef object _number
    cdef Py_ssize_t _in_window
    cdef Py_ssize_t _failed_in_window

    @cython.locals(is_failure=bint, left=double)
    cpdef record(self, outcome, now_ms)

    cpdef forget(self)

    cpdef view(self)

    cdef tuple _filling(self)
