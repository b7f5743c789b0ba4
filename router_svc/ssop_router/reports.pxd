cimport cython

from ssop_chassis.logs cimport encode_members, note
from ssop_chassis.tallies cimport Count
from ssop_router.footprint cimport describe_reasons
from ssop_router.job cimport Job
from ssop_router.traces cimport Traces
from ssop_router.traffic cimport Traffic


cdef class Reports:
    cdef object _metrics
    cdef object _recorder
    cdef readonly Traces traces
    cdef Traffic _traffic
    cdef object _trials

    cpdef begin(self, Job job)

    @cython.locals(count=Count)
    cpdef end(self, Job job, outcome)


cdef str _describe(Job job, outcome, cascade_reason, level)


cdef str _describe_numbers(
    long long frames_sent,
    long long admission_ms,
    long long retrieval_wait_ms,
    long long rag_overlap_ms,
    long long prefetches,
    long long prefetch_hits,
    long long first_field_ms,
    long long total_ms,
)
