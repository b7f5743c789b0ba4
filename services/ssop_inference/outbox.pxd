from ssop_inference.core.buffer cimport SplitCounter, join_chunks, size_of


cdef class Outbox:
    cdef object _call
    cdef object _loop
    cdef object _stream
    cdef object _timer
    cdef readonly object _leaving
    cdef Py_ssize_t _most_bytes
    cdef double _linger_s
    cdef double _next_s
    cdef public list ready
    cdef readonly SplitCounter splits
    cdef readonly Py_ssize_t frames

    cpdef offer(self)

    cpdef send(self)

    cpdef _ring(self)

    cdef _begin(self)

    cdef _send_while_room(self)

    cpdef close(self)
