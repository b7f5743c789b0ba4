from ssop_chassis.deadline cimport Alarm
from ssop_transport._stream cimport Stream


cdef class Calling(Alarm):
    cdef public Stream stream
    cdef object _waiter
    cdef readonly bint _is_late
    cdef Py_ssize_t _refusals

    cdef void _set_out(self)

    cpdef begin(self, connection, list headers, bytes request, bint is_packed)

    cpdef remaining_s(self)

    cpdef advance(self)

    cdef _hear(self)

    cpdef await_news(self)

    cpdef check_time(self)

    cpdef bint may_begin_anew(self)

    cpdef news(self)

    cpdef ring(self)

    cpdef leave(self)


cdef class Streaming(Calling):
    cdef object _on_message
    cdef object _context
