cdef class Pipeline:
    cdef object _preparation
    cdef readonly object _answers
    cdef object _entrance
    cdef object _passages
    cdef object _generator
    cdef readonly object _canned
    cdef object _cascade
    cdef object _similar
    cdef readonly object _citations
    cdef readonly object _recordings
    cdef object _receipts
    cdef readonly object _reports
    cdef object _shadows
    cdef object _regimes
    cdef object _settings
    cdef object _background
    cdef object _metrics
    cdef readonly dict _running

    cpdef accept(self, intake)

    cpdef bint discard(self, job) except -1

    cdef _end_unserved(self, job, outcome)

    cdef _release(self, job)
