cimport cython


cdef class _Entry:
    cdef Py_ssize_t sent
    cdef Py_ssize_t received
    cdef Py_ssize_t verified
    cdef bint is_whole
    cdef bint is_receipted


cdef class Receipts:
    cdef readonly Py_ssize_t sent
    cdef readonly Py_ssize_t received
    cdef readonly Py_ssize_t verified
    cdef object _metrics
    cdef object _thin
    cdef object _entries

    @cython.locals(entry=_Entry)
    cpdef record_sent(self, str tenant, str request_id, Py_ssize_t frames, bint is_whole)

    @cython.locals(entry=_Entry)
    cpdef of_request(self, str tenant, str request_id)

    @cython.locals(entry=_Entry)
    cpdef record(self, str tenant, receipts)

    cdef _add(self, _Entry entry, Py_ssize_t received, Py_ssize_t verified)
