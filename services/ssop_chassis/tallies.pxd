cimport cython


cdef class Count:
    cdef public double value

    cpdef inc(self, double amount=*)


cdef class Level:
    cdef public double value
    cdef object _ask

    cpdef set(self, double value)

    cpdef inc(self, double amount=*)

    cpdef dec(self, double amount=*)

    cpdef set_function(self, ask)

    cpdef double read(self)


cdef class Distribution:
    cdef tuple _bounds
    cdef readonly list counts
    cdef readonly double sum

    @cython.locals(place=Py_ssize_t, bound=double)
    cpdef observe(self, double value)
