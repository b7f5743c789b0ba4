from ssop_chassis.key_ring cimport KeyRing


cdef class Keys:
    cdef object _on_fault
    cdef object _file
    cdef object _store
    cdef object _secrets
    cdef dict _outdated
    cdef set _is_warned_of
    cdef long long _max_age_ms
    cdef object _now_ms
    cdef object _on_age
    cdef frozenset _from_file
    cdef KeyRing _ring

    cpdef authenticate(self, metadata)

    cpdef renew(self, principal)

    cdef _check_age(self, principal)


cdef _unchecked()
