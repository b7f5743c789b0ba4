from ssop_router.core._relay cimport Way


cdef class DirectOutlet(Way):
    cdef object _task

    cpdef put(self, chunk, frames)

    cpdef detach(self)
