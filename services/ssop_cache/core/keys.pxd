cdef class TenantKeys:
    cdef readonly str base
    cdef readonly str versions
    cdef readonly str tag
    cdef readonly str rate
    cdef readonly str used
    cdef readonly str reserved
    cdef readonly str expiry
    cdef readonly str usage
    cdef readonly str fence
    cdef readonly str flush
    cdef readonly Py_ssize_t id_at
    cdef str _request
    cdef str _lease
    cdef str _answer

    cpdef str request(self, str request_id)

    cpdef str lease(self, bytes cache_key)

    cpdef str log(self, bytes cache_key, fence)

    cpdef str channel(self, bytes cache_key)

    cpdef str answer(self, bytes cache_key)
