# cython: language_level=3, freethreading_compatible=True
"""Probes of the kernel's tracers that services hit; the header says which. What 64 bits do not hold is an OverflowError."""

cimport cython

import hashlib

from libc.stdint cimport uint64_t

cdef extern from "ssop_service_probes.h" nogil:
    void ssop_chunk_sent(uint64_t stream, uint64_t frames, uint64_t bytes)
    void ssop_chunk_received(uint64_t stream, uint64_t frames, uint64_t bytes)
    void ssop_decision(uint64_t tier, uint64_t ns)
    void ssop_prefetch(uint64_t is_hit, uint64_t ns)


cdef void note_received(uint64_t stream, uint64_t frames, uint64_t size_bytes) noexcept:
    ssop_chunk_received(stream, frames, size_bytes)


cdef void note_sent(uint64_t stream, uint64_t frames, uint64_t size_bytes) noexcept:
    ssop_chunk_sent(stream, frames, size_bytes)


def chunk_sent(uint64_t stream, uint64_t frames, uint64_t size_bytes):
    ssop_chunk_sent(stream, frames, size_bytes)


def chunk_received(uint64_t stream, uint64_t frames, uint64_t size_bytes):
    ssop_chunk_received(stream, frames, size_bytes)


def decided(uint64_t tier, uint64_t duration_ns):
    ssop_decision(tier, duration_ns)


def prefetched(bint is_hit, uint64_t age_ns):
    ssop_prefetch(is_hit, age_ns)


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from "ssop_stream_number.h" nogil:
    size_t SSOP_BLOCK_BYTES
    uint64_t ssop_hash(const char* text, size_t size)


@cython.binding(False)
@cython.always_allow_keywords(False)
def stream_number(str request_id not None):
    cdef Py_ssize_t size
    cdef const char* text = PyUnicode_AsUTF8AndSize(request_id, &size)
    if <size_t>size > SSOP_BLOCK_BYTES:
        return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "little") or 1
    return ssop_hash(text, size) or 1
