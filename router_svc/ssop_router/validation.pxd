cdef object _serialize, _has


cpdef bint is_plain(request, parts) except -1


cpdef check_prompt_size(size_bytes, max_prompt_bytes)


cpdef check_request_id(request_id)


cdef bint _is_within(value, least, most) except -1
