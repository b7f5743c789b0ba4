cdef class Timeline:
    cdef object _sends
    cdef double _started_s
    cdef list _marks

    cpdef mark(self, double at_s, name, detail=*)
