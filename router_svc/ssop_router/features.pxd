cdef object _NONE, _NO_TIER, _has
