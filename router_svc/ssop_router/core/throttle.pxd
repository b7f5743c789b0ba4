cimport cython


cdef class Throttle:
    cdef object _settings
    cdef double _smallest
    cdef readonly dict _waiting
    cdef object _numbers
    cdef readonly object _fields
    cdef object _refusals
    cdef double _load
    cdef double _integral
    cdef double _share
    cdef long long _stepped_ms
    cdef long long _interval_ms

    cpdef begin(self, long long now_ms)

    cpdef end(self, number, long long now_ms, bint is_refused=*)

    cpdef drop(self, number)

    @cython.locals(elapsed_ms=double, excess=double, least=double, moved=double)
    cdef _step(self, long long now_ms)

    cdef _measure(self, now_ms)
