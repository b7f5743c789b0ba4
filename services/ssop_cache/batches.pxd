from ssop_cache.admissions cimport Admissions, Admitting
from ssop_cache.conclusions cimport Conclusion, Conclusions


cdef class Batches:
    cdef object _authenticate
    cdef Admissions _admissions
    cdef Conclusions _conclusions

    cdef bytes _write(self, one)


cdef bytes _refuse(error)

cdef bytes _serialize(outcome)

cdef bytes _conclude(Conclusion one)

cdef _read(entry)

cdef _bound(list asked, list outcomes)
