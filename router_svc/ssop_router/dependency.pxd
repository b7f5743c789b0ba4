from ssop_chassis.attention cimport Attention


cdef class Lane:
    cdef object _slots
    cdef Py_ssize_t _most_waiting
    cdef readonly Py_ssize_t waiting


cdef class Dependency:
    cdef readonly object name
    cdef Attention _attention
    cdef object _peer
    cdef long long _skip_ms
    cdef object _clock_ms
    cdef Py_ssize_t _failures
    cdef bint _is_serving
    cdef long long _ask_again_ms
    cdef long long _answered_ms

    cpdef bint is_left_alone(self) except -1

    cdef _check(self)

    cpdef judge(self, error)

    cdef _answer(self)
