cdef class Conversations:
    cdef Py_ssize_t _size
    cdef object _ttl_ms
    cdef object _entries

    cpdef find(self, tenant, name, now_ms)

    cpdef bint advance(self, tenant, name, decision, now_ms) except -1
