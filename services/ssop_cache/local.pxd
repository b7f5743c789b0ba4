cimport cython

from ssop_cache.core.local cimport LocalAnswer, LocalAnswers


cdef class LocalLevel:
    cdef readonly LocalAnswers answers
    cdef public Py_ssize_t changes
    cdef object _state
    cdef object _cache
    cdef object _metrics
    cdef object _directory
    cdef double _interval_s
    cdef long long _unsynced_ms
    cdef object _wall_ms
    cdef public object _cursor
    cdef public object _epoch
    cdef public object _synced_s
    cdef public double _stale_s
    cdef double _rest_s
    cdef public bint _is_used
    cdef public double _unused_s
    cdef readonly object _woken
    cdef readonly object _caught_up
    cdef readonly object _written
    cdef double _written_s
    cdef readonly object _pending
    cdef readonly dict _dirty
    cdef readonly bint _is_all_dirty
    cdef readonly object _disk
    cdef object _thread
    cdef readonly list _tasks

    @cython.locals(answers=LocalAnswers, name=tuple)
    cpdef list find_all(self, list wanted)

    cpdef LocalAnswer find_unsynced(self, tuple name, max_age_ms)

    cpdef wall_ms(self)

    cpdef put(self, tuple name, LocalAnswer answer, Py_ssize_t changes, bint is_newer)

    cpdef apply(self, change)

    cdef _forget_all(self)

    cdef _mark(self, names)

    cdef _mark_all(self)

    cpdef _count_fault(self, kind)
