cdef class Background:
    cdef set _tasks

    cpdef start(self, work)

    cpdef keep(self, task)
