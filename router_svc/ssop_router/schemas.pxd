cdef class SchemaCache:
    cdef Py_ssize_t _size
    cdef object _entries
    cdef tuple _latest

    cpdef of_prompt(self, prompt, parts)

    cpdef compile(self, source)

    cdef _find(self, wire)


cdef _compile(source)
