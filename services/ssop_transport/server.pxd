from ssop_transport._stream cimport Stream
from ssop_transport.served cimport NativeCall


cdef class NativeServer:
    cdef readonly tuple addresses
    cdef dict _methods
    cdef object _dispatcher
    cdef double _default_timeout_s
    cdef double _max_session_s
    cdef Py_ssize_t _max_message_bytes
    cdef Py_ssize_t _max_concurrent_calls
    cdef object _lives
    cdef bint _is_packing
    cdef readonly object _room
    cdef readonly dict _connections
    cdef public Py_ssize_t _most_connections
    cdef public bint _is_stopped
    cdef readonly object _gatherings
    cdef readonly object _silence
    cdef object _watch
    cdef object _loop
    cdef readonly dict _tasks
    cdef readonly list _listeners

    cpdef _begin(self, connection, Stream stream)

    cdef _open(self, opening, connection, Stream stream)

    cpdef _start(self, NativeCall call)
