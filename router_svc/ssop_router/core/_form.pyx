# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What the key of an answer is the hash of, written at once; see the pure twin, which defines it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from ssop_router.core._form_py import DOMAIN, pack_scopes

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    FIRST_BYTES = 2_048


cdef class Form:
    """Bytes that grow."""

    cdef char* data
    cdef Py_ssize_t size, room

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int add_raw(self, const char* data, Py_ssize_t size) except -1:
        cdef char* larger
        cdef Py_ssize_t room
        if size > self.room - self.size:
            room = max(FIRST_BYTES, 2 * (self.size + size))
            larger = <char*>PyMem_Realloc(self.data, room)
            if larger == NULL:
                raise MemoryError
            self.data, self.room = larger, room
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef int add_number(self, uint64_t number) except -1:
        cdef char written[8]
        cdef int place
        for place in range(8):
            written[7 - place] = <char>(number & 0xFF)
            number >>= 8
        return self.add_raw(written, 8)

    cdef int add_bytes(self, bytes item) except -1:
        if item is None:
            raise TypeError("a form of nothing")
        self.add_number(PyBytes_GET_SIZE(item))
        return self.add_raw(PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))

    cdef int add_text(self, str item) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* data = PyUnicode_AsUTF8AndSize(item, &size)
        self.add_number(size)
        return self.add_raw(data, size)

    cdef int add_list(self, tuple items) except -1:
        self.add_number(len(items))
        for item in items:
            self.add_bytes(item)
        return 0


def encode(fields):
    """See the pure twin."""
    if not isinstance(fields, tuple):
        raise TypeError("no fields")
    cdef Form form = Form.__new__(Form)
    cdef bytes domain = DOMAIN, packed
    cdef tuple collections
    (
        tenant, scopes, model, sampling, template_version, schema_hash, index_version, messages, tools, tool_choice,
        collections, retrieval_top_k, stream_buffer_bytes, wire_version, codec_version,
    ) = <tuple>fields
    packed = pack_scopes(scopes)
    form.add_raw(PyBytes_AS_STRING(domain), PyBytes_GET_SIZE(domain))
    form.add_text(tenant)
    form.add_raw(PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    form.add_text(model)
    form.add_bytes(sampling)
    form.add_text(template_version)
    form.add_bytes(schema_hash)
    form.add_text(index_version)
    form.add_list(messages)
    form.add_list(tools)
    form.add_bytes(tool_choice)
    form.add_number(len(collections))
    for name in collections:
        form.add_text(name)
    form.add_number(retrieval_top_k)
    form.add_number(stream_buffer_bytes)
    form.add_number(wire_version)
    form.add_text(codec_version)
    return PyBytes_FromStringAndSize(form.data, form.size)
