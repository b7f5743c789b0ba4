from ssop_chassis.tracing cimport inject
from ssop_transport.calling cimport Calling


cdef class NativePeer:
    cdef readonly object address
    cdef object _fault
    cdef object _names
    cdef object _way
    cdef bint _is_literal
    cdef bytes _scheme
    cdef bytes _authority
    cdef bint _is_packing
    cdef dict _beginnings
    cdef readonly list _lines
    cdef list _leaving
    cdef Py_ssize_t _turn
    cdef double _resolved_s
    cdef object _resolving
    cdef object _joining
    cdef object _watch
    cdef bint _is_closed
    cdef Py_ssize_t _calls
    cdef object _is_quiet

    cdef list _beginning(self, method)

    cdef _enter(self, Calling calling, double timeout_s)

    cdef _leave(self, Calling calling)

    cpdef _pick(self)

    cdef _join_spare(self)

    cdef _watch_on(self)
