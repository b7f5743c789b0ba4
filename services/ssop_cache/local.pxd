from ssop_cache.core.local cimport LocalAnswers


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

    cpdef find_all(self, wanted)

    cpdef find_unsynced(self, tuple name, max_age_ms)

    cpdef age_ms(self, answer)

    cpdef apply(self, change)

    cdef _forget_all(self)

    cdef _mark(self, names)

    cdef _mark_all(self)

    cpdef _count_fault(self, kind)
