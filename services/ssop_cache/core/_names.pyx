# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Ids of requests and marks of their questions: by characters, without a pattern and without a number in between."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void* PyUnicode_DATA(object text)

cdef enum:
    MAX_ID = 64
    DIGITS = 16

cdef const char* HEX = b"0123456789abcdef"
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
    for place in range(DIGITS):
        digits[place] = HEX[mark >> (4 * (DIGITS - 1 - place)) & 0xF]
    return PyUnicode_DecodeASCII(digits, DIGITS, NULL)
