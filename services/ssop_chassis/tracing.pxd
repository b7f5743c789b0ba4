cimport cython


cdef double _LOOK_S, _looked_s
cdef bint _is_traced


@cython.locals(now_s=double)
cpdef bint is_traced() except -1

cpdef inject(metadata)
