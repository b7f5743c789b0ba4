cdef double _PLACES, _WHOLE, _LARGEST


cpdef dict describe_reasons(decision)


cdef double _shorten(double value)
