# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Messages between a router and its cache service, written and read without a protobuf object for each part.

Numbers of fields are those of `cache.proto`. Bytes of a reply are taken as a stranger's: every length is checked.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from ssop_codec._wire cimport get_varint, put_varint
from ssop_router.core._fields cimport (
    BYTES, FIXED32, FIXED64, VARINT, bytes_size, number_size, put_bytes, put_double, put_number,
)
from ssop_router.core._tuples cimport fill

from ssop_router.core.envelope import Admitted, Outcome

# What is said of nearly all settlements.
cdef object SETTLED_AND_COMMITTED = Outcome(2, None, b"", 5, b"")

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


def write_admission(
    str request_id not None,
    bytes cache_key not None,
    uint32_t reserve_tokens,
    uint32_t lease_ms,
    uint64_t max_age_ms,
    bint no_lease,
    double rate_share,
    uint32_t reservation_ms,
):
    cdef Py_ssize_t id_size = 0, key_size = PyBytes_GET_SIZE(cache_key)
    cdef const char *name = PyUnicode_AsUTF8AndSize(request_id, &id_size)
    cdef uint64_t share = 0
    memcpy(&share, &rate_share, 8)
    cdef Py_ssize_t size = number_size(reserve_tokens) + number_size(lease_ms) + number_size(max_age_ms)
    size += number_size(no_lease) + number_size(reservation_ms)
    size += bytes_size(id_size) if id_size else 0
    size += bytes_size(key_size) if key_size else 0
    size += 9 if share else 0
    cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(message)
    if id_size:
        at = put_bytes(at, 1, name, id_size)
    if key_size:
        at = put_bytes(at, 2, PyBytes_AS_STRING(cache_key), key_size)
    at = put_number(at, 3, reserve_tokens)
    at = put_number(at, 4, lease_ms)
    at = put_number(at, 5, max_age_ms)
    at = put_number(at, 6, no_lease)
    if share:
        at = put_double(at, 7, rate_share)
    put_number(at, 8, reservation_ms)
    return message


def write_settlement(str request_id not None, bytes usage not None, bytes counts not None):
    cdef Py_ssize_t id_size = 0, usage_size = PyBytes_GET_SIZE(usage), counts_size = PyBytes_GET_SIZE(counts)
    cdef const char *name = PyUnicode_AsUTF8AndSize(request_id, &id_size)
    cdef Py_ssize_t size = bytes_size(usage_size) + bytes_size(counts_size)
    size += bytes_size(id_size) if id_size else 0
    cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(message)
    if id_size:
        at = put_bytes(at, 1, name, id_size)
    at = put_bytes(at, 2, PyBytes_AS_STRING(usage), usage_size)
    put_bytes(at, 3, PyBytes_AS_STRING(counts), counts_size)
    return message


def write_commit(
    bytes cache_key not None,
    uint64_t fencing_token,
    bytes chunk not None,
    bint is_complete,
    str model not None,
    bint is_all,
):
    cdef Py_ssize_t key_size = PyBytes_GET_SIZE(cache_key), chunk_size = PyBytes_GET_SIZE(chunk), model_size = 0
    cdef const char *name = PyUnicode_AsUTF8AndSize(model, &model_size)
    cdef Py_ssize_t size = number_size(fencing_token) + number_size(is_complete) + number_size(is_all)
    size += bytes_size(key_size) if key_size else 0
    size += bytes_size(chunk_size) if chunk_size else 0
    size += bytes_size(model_size) if model_size else 0
    cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(message)
    if key_size:
        at = put_bytes(at, 1, PyBytes_AS_STRING(cache_key), key_size)
    at = put_number(at, 2, fencing_token)
    if chunk_size:
        at = put_bytes(at, 3, PyBytes_AS_STRING(chunk), chunk_size)
    at = put_number(at, 4, is_complete)
    if model_size:
        at = put_bytes(at, 6, name, model_size)
    put_number(at, 7, is_all)
    return message


cdef inline Py_ssize_t entry_size(bytes principal, bytes work, bytes commit) noexcept:
    cdef Py_ssize_t size = bytes_size(PyBytes_GET_SIZE(work))
    if PyBytes_GET_SIZE(principal):
        size += bytes_size(PyBytes_GET_SIZE(principal))
    if commit is not None:
        size += bytes_size(PyBytes_GET_SIZE(commit))
    return size


def write_batch(entries):
    # Gone through twice: what is measured is what is written.
    cdef tuple held = tuple(entries)
    cdef bytes principal, work, commit
    cdef int number
    cdef Py_ssize_t size = 0
    for principal, number, work, commit in held:
        if principal is None or work is None or not 0 < number < 16:
            raise ValueError("an entry that is none")
        size += bytes_size(entry_size(principal, work, commit))
    cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(message)
    for principal, number, work, commit in held:
        at[0] = 1 << 3 | BYTES
        at = put_varint(at + 1, <uint64_t>entry_size(principal, work, commit))
        if PyBytes_GET_SIZE(principal):
            at = put_bytes(at, 1, PyBytes_AS_STRING(principal), PyBytes_GET_SIZE(principal))
        at = put_bytes(at, number, PyBytes_AS_STRING(work), PyBytes_GET_SIZE(work))
        if commit is not None:
            at = put_bytes(at, 4, PyBytes_AS_STRING(commit), PyBytes_GET_SIZE(commit))
    return message


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef struct Field:
    uint64_t tag
    uint64_t value          # of a number
    Cursor body             # of bytes


cdef int damaged() except -1:
    raise ValueError("a reply that can't be read")


cdef int take_varint(Cursor *cursor, uint64_t *value) except -1:
    return damaged() if get_varint(&cursor.at, cursor.end, value) else 0


cdef int take_field(Cursor *cursor, Field *field) except -1:
    """The next field, whatever it is."""
    cdef uint64_t size = 0
    take_varint(cursor, &field.tag)
    if field.tag >> 3 == 0 or field.tag > <uint32_t>0xFFFFFFFF:
        damaged()
    cdef int kind = field.tag & 7
    if kind == VARINT:
        take_varint(cursor, &field.value)
        return 0
    if kind == BYTES:
        take_varint(cursor, &size)
    elif kind == FIXED64:
        size = 8
    elif kind == FIXED32:
        size = 4
    else:
        damaged()
    if size > <uint64_t>(cursor.end - cursor.at):
        damaged()
    field.body.at = cursor.at
    cursor.at += size
    field.body.end = cursor.at
    return 0


cdef inline Cursor cursor_of(bytes message) noexcept:
    cdef Cursor cursor
    cursor.at = <const uint8_t *>PyBytes_AS_STRING(message)
    cursor.end = cursor.at + PyBytes_GET_SIZE(message)
    return cursor


cdef inline bytes copy(Cursor body):
    return PyBytes_FromStringAndSize(<const char *>body.at, body.end - body.at)


cdef object admitted_of(Cursor cursor):
    cdef Field field
    cdef int32_t outcome = 0
    cdef uint64_t fencing_token = 0
    cdef bytes answer = b"", limits = b""
    while cursor.at < cursor.end:
        take_field(&cursor, &field)
        if field.tag == (1 << 3 | VARINT):
            outcome = <int32_t>field.value
        elif field.tag == (2 << 3 | BYTES):
            answer = copy(field.body)
        elif field.tag == (3 << 3 | VARINT):
            fencing_token = field.value
        elif field.tag == (5 << 3 | BYTES):
            limits = copy(field.body)
    return fill(Admitted, (outcome, fencing_token, answer, limits))


def read_admitted(bytes message not None):
    return admitted_of(cursor_of(message))


cdef object outcome_of(Cursor cursor):
    cdef Field field
    cdef int number = 0, end = 0
    cdef object admitted = None
    cdef bytes status = b"", end_status = b""
    while cursor.at < cursor.end:
        take_field(&cursor, &field)
        if field.tag == (1 << 3 | BYTES):
            number, admitted, status = 1, admitted_of(field.body), b""
        elif field.tag == (2 << 3 | BYTES):
            number, admitted, status = 2, None, b""
        elif field.tag == (3 << 3 | BYTES):
            number, admitted, status = 3, None, copy(field.body)
        elif field.tag == (4 << 3 | VARINT):
            number, admitted, status = 4, None, b""
        elif field.tag == (5 << 3 | BYTES):
            end, end_status = 5, b""
        elif field.tag == (6 << 3 | BYTES):
            end, end_status = 6, copy(field.body)
    if number == 2 and end == 5:
        return SETTLED_AND_COMMITTED
    return fill(Outcome, (number, admitted, status, end, end_status))


def read_outcomes(bytes message not None):
    cdef Cursor cursor = cursor_of(message)
    cdef Field field
    cdef list found = []
    while cursor.at < cursor.end:
        take_field(&cursor, &field)
        if field.tag == (1 << 3 | BYTES):
            found.append(outcome_of(field.body))
    return found
