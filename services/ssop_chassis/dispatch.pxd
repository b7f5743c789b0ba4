from ssop_chassis.tracing cimport is_traced


cdef class CallState:
    cdef object __weakref__
    cdef public bint is_left
    cdef readonly object method
    cdef public object metadata
    cdef readonly dict trailing
    cdef double _deadline_s
    cdef object _principal

    cpdef _set_up(self, method, metadata, double deadline_s)

    cpdef admit(self, principal)

    cpdef remaining_s(self)

    cpdef set_trailing_metadata(self, metadata)

    cpdef carry(self, work, outlives)


cdef class _Unseen:
    pass


cdef class Dispatcher:
    cdef readonly object authenticate
    cdef readonly object observer
