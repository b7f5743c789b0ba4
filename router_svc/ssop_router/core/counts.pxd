cimport cython


cdef class CountWindow:
    cdef Py_ssize_t _slots
    cdef Py_ssize_t _slot_ms
    cdef object _kept

    @cython.locals(number="long long", counts=dict)
    cpdef add(self, name, long long now_ms)

    cdef _expire(self, long long number)
