from ssop_router.background cimport Background
from ssop_router.job cimport Job


cdef class Kept:
    cdef object _levels
    cdef Background _background
    cdef double _late_s
    cdef double _timeout_s
    cdef Py_ssize_t _beside
    cdef object _watches
    cdef object _timer

    cpdef watch(self, admission, Job job, bytes key)

    cpdef _look(self)

    cdef _begin(self, Job job, bytes key)
