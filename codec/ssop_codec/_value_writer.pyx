# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Frames of Python values, for who has values and not the text of a document."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from ssop_codec._states cimport KIND_CLOSE, KIND_VALUE
from ssop_codec._wire cimport put_varint, varint_size

from .wire import RefStep

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    STACK_BYTES = 512
    # Tag and length of most frames; and everything else of a head but its path.
    GAP_BYTES = 2
    HEAD_BYTES = 48

cdef struct Output:
    uint8_t* data
    size_t size
    size_t room
    uint8_t* stack      # where `data` is at first


cdef int _reserve(Output* out, size_t more) except -1:
    """Room for `more` bytes."""
    cdef size_t room
    cdef uint8_t* data
    if more <= out.room - out.size:
        return 0
    room = 2 * out.room + more
    if out.data == out.stack:
        data = <uint8_t*>malloc(room)
        if data is not NULL:
            memcpy(data, out.data, out.size)
    else:
        data = <uint8_t*>realloc(out.data, room)
    if data is NULL:
        raise MemoryError
    out.data = data
    out.room = room
    return 0


cdef inline int _put_number(Output* out, uint8_t tag, uint64_t value) except -1:
    """A varint field, for which there is room."""
    out.data[out.size] = tag
    out.size = put_varint(out.data + out.size + 1, value) - out.data
    return 0


cdef int _put_bytes(Output* out, uint8_t tag, const void* data, size_t size) except -1:
    """A length-delimited field."""
    _reserve(out, size + 11)
    _put_number(out, tag, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef int _put_step(Output* out, object step) except -1:
    """One `path` field."""
    cdef Py_ssize_t size
    cdef const char* text
    cdef uint64_t number
    if isinstance(step, str):
        text = PyUnicode_AsUTF8AndSize(step, &size)
        _reserve(out, size + 22)
        _put_number(out, 0x22, 1 + varint_size(size) + size)
        _put_number(out, 0x12, size)
        memcpy(out.data + out.size, text, size)
        out.size += size
        return 0
    number = step
    _reserve(out, 22)
    _put_number(out, 0x22, 1 + varint_size(number))
    return _put_number(out, 0x18 if type(step) is not int and isinstance(step, RefStep) else 0x08, number)


cdef int _put_value(Output* out, object value) except -1:
    """The content field of a scalar."""
    cdef Py_ssize_t size
    cdef const char* text
    cdef double fraction
    cdef uint64_t bits
    cdef long long number
    cdef int overflow
    cdef int i
    if isinstance(value, str):
        text = PyUnicode_AsUTF8AndSize(value, &size)
        return _put_bytes(out, 0x42, text, size)
    if PyBytes_Check(value):
        return _put_bytes(out, 0x6A, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    _reserve(out, 11)
    if value is None:
        return _put_number(out, 0x60, 0)
    if isinstance(value, bool):
        return _put_number(out, 0x58, 1 if value else 0)
    if isinstance(value, int):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            return _put_number(out, 0x50, (<uint64_t>number << 1) ^ <uint64_t>(number >> 63))
        digits = str(value).encode()
        return _put_bytes(out, 0x6A, PyBytes_AS_STRING(digits), PyBytes_GET_SIZE(digits))
    if isinstance(value, float):
        fraction = value
        memcpy(&bits, &fraction, 8)
        out.data[out.size] = 0x49
        for i in range(8):
            out.data[out.size + 1 + i] = <uint8_t>(bits >> (8 * i))
        out.size += 9
        return 0
    raise TypeError(f"no frame holds a value of type {type(value).__name__}")


cdef int _put_frame(
    Output* out, uint64_t seq, uint32_t kind, object value, uint32_t node, object path, uint32_t parts,
    uint32_t document, bint is_array,
) except -1:
    """One frame of a chunk."""
    cdef size_t start = out.size
    cdef size_t body
    cdef size_t prefix
    _reserve(out, GAP_BYTES + HEAD_BYTES)
    out.size += GAP_BYTES
    if seq:
        _put_number(out, 0x08, seq)
    if kind:
        _put_number(out, 0x10, kind)
    if node:
        _put_number(out, 0x18, node)
    if type(path) is tuple:
        for step in <tuple>path:
            _put_step(out, step)
    else:
        for step in path:
            _put_step(out, step)
    if parts or document:
        _reserve(out, 12)
        if parts:
            _put_number(out, 0x28, parts)
        if document:
            _put_number(out, 0x30, document)
    if kind == KIND_CLOSE:
        if not isinstance(value, int):
            raise TypeError("the value of a CLOSE frame is a size")
        _reserve(out, 11)
        _put_number(out, 0x78 if is_array else 0x70, <uint64_t>value)
    else:
        _put_value(out, value)
    body = out.size - start - GAP_BYTES
    if body >= 0x80:
        prefix = 1 + varint_size(body)
        _reserve(out, prefix)
        memmove(out.data + start + prefix, out.data + start + GAP_BYTES, body)
        out.size = start + prefix + body
    out.data[start] = 0x0A
    put_varint(out.data + start + 1, body)
    return 0


@cython.binding(False)
def encode_frame(
    uint64_t seq,
    uint32_t kind,
    value=None,
    *,
    uint32_t node=0,
    path=(),
    uint32_t parts=0,
    uint32_t document=0,
    bint is_array=False,
):
    """A chunk with one VALUE, PART or CLOSE frame, from a Python value.

    `bytes` are the text of a JSON number; an int beyond int64 becomes such a text. For CLOSE the value is
    the size of the container, an object unless `is_array`.
    """
    cdef uint8_t[STACK_BYTES] stack
    cdef Output out
    out.data = out.stack = stack
    out.size = 0
    out.room = STACK_BYTES
    try:
        _put_frame(&out, seq, kind, value, node, path, parts, document, is_array)
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        if out.data != out.stack:
            free(out.data)


def encode_values(uint64_t first_seq, values, *, uint32_t document=0):
    """A chunk with one VALUE frame for each `(node, path, value)`, numbered from `first_seq`."""
    cdef uint8_t[STACK_BYTES] stack
    cdef Output out
    cdef uint64_t seq = first_seq
    out.data = out.stack = stack
    out.size = 0
    out.room = STACK_BYTES
    try:
        for node, path, value in values:
            _put_frame(&out, seq, KIND_VALUE, value, node, path, 0, document, False)
            seq += 1
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)
    finally:
        if out.data != out.stack:
            free(out.data)
