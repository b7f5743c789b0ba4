cimport cython
from libc.stdint cimport uint64_t

from ssop_router.core._relay cimport Sends as _Sends
from ssop_router.core.timeline cimport Timeline as _Timeline


cdef int _NO_VERDICT, _OK, _INCOMPLETE, _NOT_INCOMPLETE, _STOP, _NO_FINISH, _NO_MODE
cdef int _NOT_DEGRADED, _NO_CASCADE, _HIT


cdef class Intake:
    cdef readonly object request
    cdef readonly object principal
    cdef readonly double timeout_s
    cdef readonly object policy
    cdef readonly object prefetches
    cdef readonly double arrived_s


cdef class Ending:
    cdef readonly int verdict
    cdef readonly bint has_ended
    cdef readonly object violation
    cdef readonly int incomplete_reason
    cdef readonly int finish_reason
    cdef readonly object usage

    cpdef take(self, end)


cdef class Reading:
    cdef public Ending ending
    cdef public uint64_t last_seq
    cdef public int constraint_mode
    cdef public tuple engine_limits


cdef class Job:
    cdef readonly Intake intake
    cdef readonly object request
    cdef readonly object principal
    cdef readonly object tenant
    cdef readonly object request_id
    cdef readonly object parts
    cdef readonly object features
    cdef readonly object schema
    cdef public object decision
    cdef readonly long long decision_us
    cdef readonly object inner_metadata
    cdef readonly double started_s
    cdef readonly double deadline_s
    cdef readonly tuple explanation
    cdef readonly object record
    cdef readonly object transcript
    cdef public object stage
    cdef public object target
    cdef readonly int canned_reason
    cdef public object question
    cdef public object kept
    cdef readonly bint is_similar
    cdef readonly int similar_reason
    cdef public tuple failed
    cdef public int cache_reason
    cdef public int retrieval_reason
    cdef readonly list unavailable
    cdef public list passages
    cdef public Reading reading
    cdef public object cascade
    cdef public object discarded_usage
    cdef readonly list continuations
    cdef readonly _Sends sends
    cdef public long long admission_ms
    cdef public long long retrieval_wait_ms
    cdef public long long first_field_ms
    cdef public long long rag_overlap_ms
    cdef public long long prefetch_hits
    cdef public bint is_begun
    cdef public bint is_billed
    cdef public bint is_admitted
    cdef public bint is_refused
    cdef public bint is_interrupted
    cdef public object lease
    cdef public _Timeline timeline

    cpdef take_similar(self, int reason)

    cpdef take_canned(self)

    @cython.locals(now_s=double)
    cpdef long long elapsed_ms(self) except -1

    cpdef mark(self, name, detail=*)

    @cython.locals(now_s=double)
    cpdef double remaining_s(self) except -1
