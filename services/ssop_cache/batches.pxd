cimport cython

from ssop_cache.admissions cimport Admissions, Admitting
from ssop_cache.conclusions cimport Conclusion, Conclusions


cdef class Batches:
    cdef object _authenticate
    cdef Admissions _admissions
    cdef Conclusions _conclusions

    @cython.locals(conclusion=Conclusion, one=Admitting, asked=list, tenants=dict)
    cdef list _part(self, entries, dict admitting, dict concluding)

    @cython.locals(admitted=Admitting)
    cdef bytes _write(self, one)


cdef bytes _refuse(error)

cdef bytes _serialize(outcome)

cdef bytes _conclude(Conclusion one)

cdef _bound(list asked, list outcomes)
