from ssop_router.job cimport Job


cdef int _UNDECIDED, _HIT, _FOLLOWER, _MISS


cdef class Entrance:
    cdef object _answers
    cdef object _retrieval
    cdef object _metrics

    cpdef known_collections(self, Job job)

    cpdef do_without_passages(self, Job job)

    cpdef make_key(self, Job job, collections)

    cdef _do_without(self, Job job, str dependency)


cdef _choose(Job job, found)
