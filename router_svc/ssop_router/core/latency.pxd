cimport cython
from libc cimport math


cdef double _LOG_GAMMA, _SHORTEST_MS, _LONGEST_MS


cdef class _Slot:
    cdef readonly object number
    cdef dict buckets
    cdef Py_ssize_t failures


cdef class LatencyWindow:
    cdef Py_ssize_t _slots
    cdef Py_ssize_t _slot_ms
    cdef object _kept
    cdef dict _buckets
    cdef Py_ssize_t _outcomes
    cdef Py_ssize_t _failures

    @cython.locals(slot=_Slot, buckets=dict)
    cpdef record(self, double latency_ms, bint is_failure, now_ms)

    cpdef clear(self)

    @cython.locals(slot=_Slot)
    cdef _expire(self, number)


cdef Py_ssize_t _bucket(double latency_ms) noexcept
