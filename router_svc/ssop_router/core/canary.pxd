cdef object _NONE


cpdef is_shadowed(canary, tenant, request_id)


cdef _place(canary, tenant, name, purpose)
