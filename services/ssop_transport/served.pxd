from ssop_chassis.dispatch cimport CallState
from ssop_transport._stream cimport Stream


cdef class NativeCall(CallState):
    cdef readonly object served
    cdef readonly Stream stream
    cdef readonly object peer
    cdef readonly bint is_unary
    cdef public object task
    cdef public bint has_begun
    cdef public bint _is_packing
    cdef public bint _has_written
    cdef bytes _request
    cdef object _outlives
    cdef list _headers
    cdef bytes _answer
    cdef bint _is_answer_packed
    cdef list _waiters

    cdef _begin(self, opening, Stream stream, peer, double deadline_s, bint is_packing)

    cpdef listen(self)

    cpdef news(self)

    cpdef leave(self)

    cpdef let_go(self)

    cpdef send(self, bytes message)

    cpdef end(self, error)


cpdef finish(Stream stream, list pairs)
