# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What a router says to nodes and clients with each request, written without a protobuf object.

Numbers of fields are those of `inference.proto` and `mesh.proto`, and they are in the order of their numbers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_router.core._fields cimport bytes_size, put_bytes, put_float, put_number

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    # A tag of two bytes and ten of a number.
    MOST_NUMBER = 12
    FLOAT_SIZE = 6


cdef inline bint is_zero(float value) noexcept:
    """All of its bits are: protobuf writes a negative zero."""
    cdef uint32_t bits = 0
    memcpy(&bits, &value, 4)
    return bits == 0


def write_request(str request_id not None, str model not None, bytes prompt not None):
    cdef Py_ssize_t id_size = 0, model_size = 0, prompt_size = PyBytes_GET_SIZE(prompt)
    cdef const char *name = PyUnicode_AsUTF8AndSize(request_id, &id_size)
    cdef const char *model_name = PyUnicode_AsUTF8AndSize(model, &model_size)
    cdef Py_ssize_t size = bytes_size(prompt_size)
    size += bytes_size(id_size) if id_size else 0
    size += bytes_size(model_size) if model_size else 0
    cdef bytes message = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(message)
    if id_size:
        at = put_bytes(at, 1, name, id_size)
    if model_size:
        at = put_bytes(at, 2, model_name, model_size)
    put_bytes(at, 3, PyBytes_AS_STRING(prompt), prompt_size)
    return message


def write_decision(
    bytes shared not None,
    str request_id not None,
    complexity,
    uint32_t decision_us,
    score,
    float score_spread,
    float threshold,
    cascade_confidence,
):
    cdef Py_ssize_t id_size = 0, shared_size = PyBytes_GET_SIZE(shared)
    cdef const char *name = PyUnicode_AsUTF8AndSize(request_id, &id_size)
    cdef Py_ssize_t most = shared_size + 2 * MOST_NUMBER + id_size + 5 * FLOAT_SIZE
    cdef bytes message = PyBytes_FromStringAndSize(NULL, most)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(message)
    cdef uint8_t *at = start + shared_size
    memcpy(start, PyBytes_AS_STRING(shared), shared_size)
    if id_size:
        at = put_bytes(at, 1, name, id_size)
    if complexity is not None:
        at = put_float(at, 9, complexity)
    at = put_number(at, 10, decision_us)
    if score is not None:
        at = put_float(at, 16, score)
    if not is_zero(score_spread):
        at = put_float(at, 17, score_spread)
    if not is_zero(threshold):
        at = put_float(at, 18, threshold)
    if cascade_confidence is not None:
        at = put_float(at, 31, cascade_confidence)
    return message[:at - start]


def write_accounting(
    bytes usage not None,
    bint is_billed,
    uint32_t admission_ms,
    uint32_t retrieval_wait_ms,
    uint32_t first_field_ms,
    uint32_t total_ms,
    uint32_t rag_overlap_ms,
    uint32_t prefetch_hits,
    uint32_t prefetch_wasted,
    uint64_t frames_sent,
    uint32_t failed_attempts,
    bytes discarded_usage,
    uint32_t continuations,
    uint32_t prefetches,
    uint32_t prefetch_tokens,
):
    cdef Py_ssize_t usage_size = PyBytes_GET_SIZE(usage)
    cdef Py_ssize_t discarded_size = PyBytes_GET_SIZE(discarded_usage) if discarded_usage is not None else 0
    cdef bytes message = PyBytes_FromStringAndSize(NULL, usage_size + discarded_size + 15 * MOST_NUMBER)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(message)
    cdef uint8_t *at = put_bytes(start, 1, PyBytes_AS_STRING(usage), usage_size)
    at = put_number(at, 2, is_billed)
    at = put_number(at, 3, admission_ms)
    at = put_number(at, 4, retrieval_wait_ms)
    at = put_number(at, 5, first_field_ms)
    at = put_number(at, 6, total_ms)
    at = put_number(at, 8, rag_overlap_ms)
    at = put_number(at, 9, prefetch_hits)
    at = put_number(at, 10, prefetch_wasted)
    at = put_number(at, 11, frames_sent)
    at = put_number(at, 12, failed_attempts)
    if discarded_usage is not None:
        at = put_bytes(at, 13, PyBytes_AS_STRING(discarded_usage), discarded_size)
    at = put_number(at, 14, continuations)
    at = put_number(at, 20, prefetches)
    at = put_number(at, 21, prefetch_tokens)
    return message[:at - start]
