cpdef bytes cache_key(fields)


cpdef bytes scope_key(fields)
