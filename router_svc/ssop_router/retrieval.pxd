cdef class Retrieval:
    cdef object _rag
    cdef object _settings
    cdef object _clock_ms
    cdef object _regimes
    cdef object _known

    cpdef known_collections(self, str tenant, named)

    cpdef forget(self, str tenant)

    cpdef double timeout_s(self, double remaining_s) except? -1

    cdef _require(self)


cdef _pick(named, dict known)
