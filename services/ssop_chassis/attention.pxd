cimport cython


cdef class Attention:
    cdef object _on_lag
    cdef readonly double now_s
    cdef double _looked_s
    cdef object _timer
    cdef readonly dict _due_s
    cdef set _last_look

    cpdef timeout(self, double delay_s)

    cpdef end(self, timer)

    @cython.locals(since_s=double)
    cpdef begin(self, timer, double delay_s)

    cdef _schedule(self, loop, double delay_s)

    @cython.locals(passed_s=double, credit_s=double)
    cdef _pass(self, loop)

    @cython.locals(due_s=double, next_s=double)
    cpdef _look(self)


cdef class AttentiveTimeout:
    cdef Attention _attention
    cdef double _delay_s
    cdef object _timer
