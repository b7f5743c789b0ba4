cimport cython

from ssop_router.answers cimport Answers as _Answers
from ssop_router.background cimport Background as _Background
from ssop_router.entrance cimport Entrance as _Entrance
from ssop_router.job cimport Intake, Job
from ssop_router.preparation cimport Preparation as _Preparation
from ssop_router.profiles cimport Regimes as _Regimes
from ssop_router.receipts cimport Receipts as _Receipts
from ssop_router.reports cimport Reports as _Reports


cdef int _HIT, _FOLLOWER


cdef class Pipeline:
    cdef _Preparation _preparation
    cdef readonly _Answers _answers
    cdef _Entrance _entrance
    cdef object _passages
    cdef object _generator
    cdef readonly object _canned
    cdef object _cascade
    cdef object _similar
    cdef readonly object _citations
    cdef readonly object _recordings
    cdef _Receipts _receipts
    cdef readonly _Reports _reports
    cdef object _shadows
    cdef _Regimes _regimes
    cdef object _settings
    cdef _Background _background
    cdef object _metrics
    cdef readonly dict _running

    @cython.locals(job=Job, name=tuple)
    cpdef Job accept(self, Intake intake)

    cpdef bint discard(self, Job job) except -1

    cdef _end_unserved(self, Job job, str outcome)

    cdef _release(self, Job job)
