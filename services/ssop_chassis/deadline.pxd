cimport cython


cdef double _COARSE_S, _SLOT_S, _MOST_S, _ROUNDING_S, _YIELD_S
cdef dict _TASKS


cdef class _Wheel:
    cdef readonly object loop
    cdef readonly object thread
    cdef object now_s
    cdef readonly dict _slots
    cdef readonly object _timer
    cdef long long _looks_at

    @cython.locals(slot=cython.longlong, alarms=set)
    cdef set take(self, double at_s, Alarm alarm)

    @cython.locals(slot=cython.longlong)
    cdef void drop(self, double at_s)

    cdef void _look_at(self, long long slot)

    @cython.locals(now_s=double, passed=cython.longlong, slot=cython.longlong)
    cpdef _look(self)


@cython.locals(wheel=_Wheel)
cpdef _Wheel _wheel()


@cython.locals(wheel=_Wheel)
cpdef running_loop()


@cython.locals(now_ns=cython.longlong)
cpdef long long monotonic_ms()


cdef class Alarm:
    cdef _Wheel _wheel
    cdef readonly object loop
    cdef readonly double at_s
    cdef set _alarms
    cdef object _handle

    cpdef _set_in(self)

    cpdef start(self, double delay_s)

    @cython.locals(at_s=double)
    cdef _start_at(self, double now_s, double delay_s)

    cpdef stop(self)

    @cython.locals(left_s=double)
    cpdef come(self, loop)

    cpdef _ring(self)

    cpdef ring(self)


cdef class Deadline(Alarm):
    cdef object _first_s
    cdef double _due_s
    cdef double _rings_s
    cdef object _task
    cdef bint _is_over
    cdef bint _has_yielded
    cdef int _cancelling

    @cython.locals(due_s=double)
    cpdef set(self, delay_s)

    cpdef expire(self)
