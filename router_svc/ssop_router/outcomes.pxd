cimport cython
from ssop_router.job cimport Ending, Job


cdef class Observation:
    cdef object _nodes
    cdef object _address
    cdef object _node
    cdef Job _job
    cdef object _progress
    cdef object _metrics
    cdef double _started_s

    cdef _blame(self, error)

    cdef _hear(self, error)


cpdef _read(Ending ending)


cpdef _late(progress, double started_s)
