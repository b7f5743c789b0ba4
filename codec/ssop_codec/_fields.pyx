# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Python values of protobuf fields; the hot functions over fields are inlined from the header."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from .errors import FrameError


cdef int malformed(str what) except -1:
    raise FrameError(what)


cdef str text_of(Field* field):
    expect(field, 2)
    try:
        return PyUnicode_DecodeUTF8(<char*>field.data, <Py_ssize_t>field.size, NULL)
    except UnicodeDecodeError:
        raise FrameError("a text is not UTF-8") from None


cdef bytes bytes_of(Field* field):
    expect(field, 2)
    return PyBytes_FromStringAndSize(<char*>field.data, <Py_ssize_t>field.size)
