cdef class Entrance:
    cdef object _answers
    cdef object _retrieval
    cdef object _metrics

    cpdef known_collections(self, job)

    cpdef do_without_passages(self, job)

    cpdef make_key(self, job, collections)

    cdef _do_without(self, job, dependency)


cdef _choose(job, found)
