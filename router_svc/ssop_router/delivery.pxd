cimport cython
from ssop_codec._survey cimport Survey
from ssop_router.core._relay cimport Sends as _Sends
from ssop_router.job cimport Ending, Job, Reading


cdef class Delivery:
    cdef Job _job
    cdef readonly object outlet
    cdef object _put
    cdef _Sends _sends
    cdef Py_ssize_t _chunk_bytes
    cdef object _metrics
    cdef readonly bint is_open
    cdef readonly bint is_closed
    cdef object _writing

    cpdef open(self, bytes first, Py_ssize_t frames, bint is_last=*, stored=*, double similarity=*)

    cpdef forward(self, bytes chunk, Py_ssize_t frames, bint is_last=*)

    @cython.locals(job=Job)
    cpdef mark_first_field(self)

    @cython.locals(found=Survey, reading=Reading)
    cpdef Py_ssize_t take_document(self, bytes chunk) except -1

    @cython.locals(job=Job)
    cdef bytes _accounting(self, Py_ssize_t more_frames)

    @cython.locals(job=Job, reading=Reading)
    cdef bytes _status(self, stored, double similarity=*)


cpdef take_ends(Ending ending, bytes chunk)


cpdef gather(Job job)


cpdef bytes pack_decision(facts)
