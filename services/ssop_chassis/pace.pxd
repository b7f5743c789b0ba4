cdef class Pace:
    cdef readonly double floor_s
    cdef double _slowest_s
    cdef double _at_s

    cpdef observe(self, double took_s, double now_s)

    cpdef back_off(self, double bound_s, double now_s)

    cpdef double bound_s(self, double now_s) except? -1

    cdef double _slowest(self, double now_s) except? -1
