cdef class Slot:
    cdef object _release
    cdef double _started_s
    cdef readonly double queue_s

    cpdef release(self)


cdef class SlotQueue:
    cdef public object _on_change
    cdef object _clock
    cdef object _numbers
    cdef list _waiters
    cdef Py_ssize_t _slots
    cdef public Py_ssize_t _max_waiting
    cdef double _held_s
    cdef readonly Py_ssize_t busy
    cdef readonly double queue_s

    cpdef take_free(self)

    cpdef _release(self, double started_s)

    cdef _abandon(self, waiter)

    cdef _grant(self)

    cdef _retry_after_ms(self)
