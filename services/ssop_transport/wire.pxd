cdef double _MOST_MILLIS_S


cpdef bytes encode_timeout(double timeout_s)

cpdef list encode_metadata(metadata)

cdef tuple _encode(key, value)

cpdef list response_headers(metadata, bint is_packing=*)

cpdef list trailers(int code, message, metadata)
