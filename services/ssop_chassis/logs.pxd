cdef str _encode(fields)


cpdef str encode_members(fields)


cpdef note(logger, message, members)
