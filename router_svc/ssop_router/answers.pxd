cimport cython

from ssop_chassis.tallies cimport Count
from ssop_router.background cimport Background
from ssop_router.crowd cimport Commit, Crowd
from ssop_router.dependency cimport Lane
from ssop_router.job cimport Job
from ssop_router.kept cimport Kept
from ssop_router.promises cimport Promises
from ssop_router.renewals cimport Renewals


cpdef bytes make_key(Job job, tuple collections, str index_version)


cpdef describe_request(Job job, tuple collections, str index_version)


cdef class Answers:
    cdef object _cache
    cdef readonly bint is_configured
    cdef readonly object settings
    cdef readonly object metrics
    cdef object _output_tokens
    cdef object _lease_ms
    cdef object _reservation_ms
    cdef readonly Renewals renewals
    cdef readonly object _limits
    cdef Kept _kept
    cdef Background _background
    cdef Lane _leading
    cdef readonly Promises _promises
    cdef Crowd _entry
    cdef Crowd _exit

    @cython.locals(asked=Count, answered=Count)
    cpdef settle(self, Job job, usage, counts, Commit commit=*)

    cdef _ask_to_settle(self, Job job, bytes request, hear, Commit commit=*)

    cdef bint _has_settled(self, error) except -1

    cdef _end_reservation(self, Job job)

    cdef _require(self)


cdef Crowd _require_crowd(Crowd crowd)
