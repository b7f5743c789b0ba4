cdef class _Proof:
    cdef readonly object record
    cdef readonly object principal
    cdef readonly bint is_new
    cdef readonly bint is_outdated


cdef class KeyRing:
    cdef dict _records
    cdef object _secrets
    cdef object _on_outdated
    cdef dict _proven

    cpdef authenticate(self, authorization, long long now_ms)

    cpdef renew(self, principal, long long now_ms)

    cdef _Proof _prove(self, str key_id, bytes found)

    cdef _check(self, _Proof proof, long long now_ms)


cdef _invalid_key(text)
