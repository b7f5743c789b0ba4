cdef class Fresh:
    cdef readonly bytes cache_key
    cdef readonly object fence
    cdef readonly bytes chunk
    cdef readonly str model
    cdef readonly object ttl_ms
