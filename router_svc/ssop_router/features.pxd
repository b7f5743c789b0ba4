cdef object _NONE, _NO_TIER
