from ssop_chassis.deadline cimport Alarm


cdef class Calling(Alarm):
    cdef public object stream
    cdef object _waiter
    cdef readonly bint _is_late
    cdef double _due_s

    cpdef begin(self, connection, list headers, bytes request, bint is_packed)

    cpdef remaining_s(self)

    cpdef await_news(self)

    cpdef check_time(self)

    cpdef news(self)

    cpdef ring(self)

    cpdef leave(self)


cdef class Streaming(Calling):
    cdef object _on_message
    cdef object _context
