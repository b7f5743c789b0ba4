from ssop_router.job cimport Job


cdef class Similar:
    cdef object _rules
    cdef object _sources
    cdef object _citations
    cdef object _settings
    cdef object _metrics
    cdef Py_ssize_t _remembering

    cpdef describe(self, Job job, bytes key, collections)
