cimport cython


cdef double _MOST_MILLIS_S
cdef int _FIRST_PRINTABLE, _LAST_PRINTABLE
cdef Py_ssize_t _MOST_KNOWN
cdef dict _names, _encoded


@cython.locals(millis=cython.longlong)
cpdef bytes encode_timeout(double timeout_s)

cpdef list encode_metadata(metadata)

@cython.locals(name=bytes, text=bytes)
cdef tuple _encode(key, value)

@cython.locals(byte=cython.uchar)
cdef bint _is_printable(bytes text)

cdef bytes _encode_key(key)

cdef bytes _encode_binary(value)

cdef void _remember(dict known, key, value)

cpdef list request_headers(list beginning, double timeout_s, metadata)

cpdef list response_headers(metadata, bint is_packing=*)

cpdef list trailers(int code, message, metadata)
