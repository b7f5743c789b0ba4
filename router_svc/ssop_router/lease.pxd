from ssop_router.core._relay cimport Backlog


cdef class Lease:
    cdef readonly bytes key
    cdef readonly object fencing_token
    cdef readonly object job
    cdef readonly str is_spoiled
    cdef readonly Backlog backlog
    cdef object _answers
    cdef object _sending
    cdef bint _is_closed
    cdef bint _has_appended
    cdef bint _is_stored
    cdef public object on_stored

    cpdef add(self, bytes chunk)

    cpdef spoil(self, str reason)

    cdef _end(self, bint is_complete, str model)

    cpdef _judge(self, failure)
