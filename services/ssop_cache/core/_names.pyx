# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ids of requests, marks of their questions, names of keys: by characters, without patterns and without what is in between."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from ssop_cache.core import _names_py

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void* PyUnicode_DATA(object text)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 highest)

cdef enum:
    MAX_ID = 64
    DIGITS = 16

cdef const char* HEX = b"0123456789abcdef"
cdef char[256][2] PAIRS
for _place in range(256):
    PAIRS[_place][0], PAIRS[_place][1] = HEX[_place >> 4], HEX[_place & 0xF]
cdef uint8_t[128] IN_ID
for _place in range(128):
    IN_ID[_place] = chr(_place).isalnum() or chr(_place) in "._:-"


def is_request_id(str text not None):
    """See the twin."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), place
    cdef const uint8_t* at = <const uint8_t*>PyUnicode_DATA(text)
    if not 0 < size <= MAX_ID or not PyUnicode_IS_ASCII(text):
        return False
    for place in range(size):
        if not IN_ID[at[place]]:
            return False
    return True


def mark_question(bytes cache_key not None, uint64_t tokens):
    """See the twin."""
    cdef uint64_t mark = 0
    cdef Py_ssize_t size = PyBytes_GET_SIZE(cache_key), place
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(cache_key)
    cdef char[DIGITS] digits
    for place in range(size - 8 if size > 8 else 0, size):
        mark = mark << 8 | at[place]
    mark ^= tokens
    for place in range(DIGITS // 2):
        memcpy(&digits[2 * place], PAIRS[mark >> (4 * (DIGITS - 2 - 2 * place)) & 0xFF], 2)
    return PyUnicode_DecodeASCII(digits, DIGITS, NULL)


def name_key(str prefix not None, bytes cache_key not None):
    """See the twin."""
    cdef Py_ssize_t before = PyUnicode_GET_LENGTH(prefix), size = PyBytes_GET_SIZE(cache_key), place
    cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(cache_key)
    cdef object name
    cdef char* at
    if not PyUnicode_IS_ASCII(prefix):
        return _names_py.name_key(prefix, cache_key)
    name = PyUnicode_New(before + 2 * size, 0x7F)
    at = <char*>PyUnicode_DATA(name)
    memcpy(at, PyUnicode_DATA(prefix), before)
    at += before
    for place in range(size):
        memcpy(at + 2 * place, PAIRS[key[place]], 2)
    return name
