from ssop_router.core._relay cimport Sends as _Sends


cdef class Delivery:
    cdef object _job
    cdef readonly object outlet
    cdef object _put
    cdef _Sends _sends
    cdef Py_ssize_t _chunk_bytes
    cdef object _metrics
    cdef readonly bint is_open
    cdef readonly bint is_closed
    cdef object _writing

    cpdef open(self, bytes first, Py_ssize_t frames, bint is_last=*, stored=*, double similarity=*)

    cpdef forward(self, bytes chunk, Py_ssize_t frames, bint is_last=*)

    cpdef mark_first_field(self)

    cpdef Py_ssize_t take_document(self, bytes chunk) except -1

    cdef bytes _accounting(self, Py_ssize_t more_frames)

    cdef bytes _status(self, stored, double similarity=*)
