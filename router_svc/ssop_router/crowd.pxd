cimport cython

from ssop_chassis.pace cimport Pace
from ssop_router.background cimport Background
from ssop_router.dependency cimport Dependency


cdef class Commit:
    cdef readonly bytes message
    cdef readonly object error
    cdef readonly bint is_over
    cdef object _on_end
    cdef object _waiter

    cpdef conclude(self, error)


cdef class _Asked:
    cdef readonly object work
    cdef readonly bytes message
    cdef readonly object metadata
    cdef readonly Commit commit

    cdef _set(self, work, bytes message, metadata, Commit commit)

    cpdef bint has_ended(self) except -1

    cpdef take(self, response)

    cpdef fail(self, error, cause)

    cpdef drop(self)

    cdef tuple entry(self)


cdef class _Admission(_Asked):
    cdef object _future
    cdef object _on_late


cdef class _Settlement(_Asked):
    cdef object _hear

    cdef _end(self, error)


cdef class Crowd:
    cdef Dependency _cache
    cdef Background _background
    cdef Pace _pace
    cdef Py_ssize_t _most_waiting
    cdef object _metadata
    cdef object _waiting
    cdef int _running
    cdef bint _is_due
    cdef bint _is_batching
    cdef bint _is_committing

    cpdef admit(self, bytes message, metadata, on_late=*)

    cpdef settle(self, bytes message, metadata, hear, Commit commit=*)

    cdef _check(self)

    cdef _put(self, _Asked asked, loop)

    cpdef _begin(self)

    @cython.locals(asked=_Asked)
    cdef list _take(self)

    @cython.locals(asked=_Asked)
    cdef list _tell(self, list told)

    cdef bint _has_ended(self, Commit commit, outcome) except -1

    cdef _judge(self, error)

    cdef _unavailable(self, cause)

    cdef _conclude(self, _Asked asked, outcome)


@cython.locals(asked=_Asked)
cdef bytes _pack(list batch)
