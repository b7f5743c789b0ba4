cimport cython


cdef class Ending:
    cdef readonly object finish_reason
    cdef readonly object incomplete_reason
    cdef readonly object outcome


cdef class DocumentWriter:
    cdef object _encoder
    cdef object _scorer
    cdef object _confidence
    cdef readonly tuple _final
    cdef Py_ssize_t _offset
    cdef public Py_ssize_t _repeated
    cdef bint _has_logprobs
    cdef bint _is_envelope
    cdef readonly bint is_invalid
    cdef readonly bint is_done

    cpdef _begin(self, beginning)

    cpdef list feed(self, tokens, usage=*)

    @cython.locals(flags=int)
    cdef _feed(self, bytes text)

    cpdef list finish(self, Ending ending)

    cdef _score(self, scorer, bytes text, logprob)

    cpdef list _drop_final(self, list chunks)

    cpdef list _collect(self, usage)
