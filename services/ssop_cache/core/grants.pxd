cdef class Grants:
    cdef dict _grants

    cpdef give(self, str tenant, bytes cache_key, fence, double until_s)

    cpdef bint take(self, str tenant, bytes cache_key, fence, double now_s)
