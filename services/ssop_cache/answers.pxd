cimport cython

from ssop_cache.core.local cimport LocalAnswer
from ssop_cache.local cimport LocalLevel


cdef class Fresh:
    cdef readonly bytes cache_key
    cdef readonly object fence
    cdef readonly bytes chunk
    cdef readonly str model
    cdef readonly object ttl_ms


@cython.locals(one=Fresh)
cdef list _write(fresh, str tenant, layout)


@cython.locals(answer=LocalAnswer)
cdef _keep(LocalLevel local, str tag, list stored, outcomes, Py_ssize_t changes)
