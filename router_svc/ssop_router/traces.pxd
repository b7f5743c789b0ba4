cimport cython

from ssop_router.core.timeline cimport Timeline
from ssop_router.delivery cimport gather
from ssop_router.job cimport Job


cdef class _Entry:
    cdef readonly object started_at_ms
    cdef readonly Timeline timeline
    cdef readonly object nodes
    cdef readonly Job job
    cdef readonly object outcome
    cdef readonly object decision
    cdef readonly object degraded_level


cdef class Traces:
    cdef Py_ssize_t _size
    cdef object _receipts
    cdef object _wall_ms
    cdef readonly object _entries

    @cython.locals(timeline=Timeline, name=tuple)
    cpdef open(self, Job job)

    @cython.locals(entry=_Entry)
    cpdef end(self, Job job, outcome)

    @cython.locals(entry=_Entry, job=Job)
    cpdef find(self, tenant, request_id)
