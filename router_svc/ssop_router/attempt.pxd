cimport cython
from ssop_codec._survey cimport Course, Survey as _Survey
from ssop_router.core._relay cimport Relay
from ssop_router.delivery cimport Delivery, take_ends
from ssop_router.job cimport Ending, Job, Reading
from ssop_router.lease cimport Lease


cdef class Attempt(Relay):
    cdef Job _job
    cdef Course _transcript
    cdef Delivery _delivery
    cdef Lease _lease
    cdef object _on_commit
    cdef object _outlet
    cdef object _stream
    cdef list _held
    cdef object _held_kinds
    cdef Py_ssize_t _held_frames
    cdef bint _has_tools
    cdef dict _last_seqs
    cdef set _open_documents
    cdef public bint is_continued
    cdef public int confidence_tokens
    cdef readonly Py_ssize_t held_bytes
    cdef public object first_field_s
    cdef public object wait
    cdef public bint is_committed
    cdef public bint is_finished
    cdef public bint is_client_gone
    cdef public Reading reading

    @cython.locals(documents=Py_ssize_t)
    cdef _take_apart(self, bytes chunk, _Survey found)

    @cython.locals(documents=Py_ssize_t)
    cdef Py_ssize_t _follow_sequence(self, _Survey found) except -1

    cdef Py_ssize_t _follow_documents(self, bytes chunk) except -1

    @cython.locals(held=bytes)
    cdef int _hold(self, bytes chunk, kinds) except -1

    cdef bint _is_cut(self) except -1

    cpdef _weigh(self)

    cpdef _hear(self, bytes body)

    @cython.locals(first=bytes, frames=Py_ssize_t)
    cpdef _commit(self)

    cpdef _open(self, bytes first, Py_ssize_t frames)

    cdef _guard(self, writing)

    cdef int _keep(self, bytes chunk, kinds, Py_ssize_t frames) except -1

    cdef int _merge(self, bytes body) except -1

    cdef int _take_ends(self, bytes chunk) except -1


cdef class ContinuedAttempt(Attempt):
    cdef object _target
    cdef str _cause
