from ssop_router.pipeline cimport Pipeline


cdef class RouterServicer:
    cdef Pipeline _pipeline
    cdef object _inspection
    cdef object _retrieval
    cdef object _recordings
    cdef object _receipts
    cdef object _traces
    cdef object _settings
    cdef object _background
    cdef object _sign
    cdef object _renew
    cdef object _sessions


cdef str _policy(call)
