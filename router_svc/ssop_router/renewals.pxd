from ssop_router.job cimport Job


cdef class _Held:
    cdef readonly Job job
    cdef public bint is_reserved
    cdef public object lease


cdef class Renewals:
    cdef object _cache
    cdef object _settings
    cdef object _background
    cdef object _metrics
    cdef readonly dict _held
    cdef set _renewing
    cdef double _interval_s
    cdef object _timer
    cdef double _reserve_s

    cpdef hold(self, Job job, lease, double age_s=*)

    cpdef drop_lease(self, Job job)

    cpdef drop_reservation(self, Job job)

    cdef _Held _find(self, Job job)

    cdef _forget(self, _Held held)

    cdef _schedule(self, double delay_s)

    cpdef _tick(self)
