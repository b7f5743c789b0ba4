# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Whether any of many needles is in a text, in one pass over it; see the pure twin.

Two bytes say for nearly every place of a text that no needle begins there.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    PAIR_BYTES = 8_192      # a bit for each two bytes
    CHAINS = 256

cdef struct Needle:
    const uint8_t* data     # UTF-8, of a string that the sieve holds
    Py_ssize_t size
    Py_ssize_t following    # the next one of its chain; -1: none


cdef inline Py_ssize_t chain_of(const uint8_t* data) noexcept:
    """Where needles are that begin with these two bytes; behind the last one of any text there is a zero."""
    return (data[0] * 31 + data[1]) & (CHAINS - 1)


cdef class Sieve:
    """See the pure twin."""

    cdef tuple held
    cdef Needle* needles
    cdef Py_ssize_t first[CHAINS]
    cdef bint is_needle[256]    # by itself
    cdef uint8_t pairs[PAIR_BYTES]

    def __cinit__(self, needles):
        cdef Py_ssize_t place, size = 0
        cdef Needle* needle
        self.held = tuple(needles)
        if not all(self.held):
            raise ValueError("an empty needle is in every text")
        for place in range(CHAINS):
            self.first[place] = -1
        self.needles = <Needle*>PyMem_Calloc(len(self.held) + 1, sizeof(Needle))
        if self.needles == NULL:
            raise MemoryError
        for place in range(len(self.held)):
            needle = self.needles + place
            needle.data = <const uint8_t*>PyUnicode_AsUTF8AndSize(self.held[place], &size)
            needle.size = size
            needle.following = self.first[chain_of(needle.data)]
            self.first[chain_of(needle.data)] = place
            self.mark(needle)

    def __dealloc__(self):
        PyMem_Free(self.needles)

    cdef void mark(self, Needle* needle) noexcept:
        cdef Py_ssize_t second, pair
        self.is_needle[needle.data[0]] |= needle.size == 1
        for second in range(256):
            if needle.size == 1 or needle.data[1] == second:
                pair = needle.data[0] << 8 | second
                self.pairs[pair >> 3] |= 1 << (pair & 7)

    def catches(self, str text not None):
        """See the pure twin."""
        cdef Py_ssize_t size = 0, at
        cdef uint32_t pair
        cdef const uint8_t* data
        try:
            data = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:
            return True
        pair = data[0]
        for at in range(size):
            pair = (pair << 8 | data[at + 1]) & 0xFFFF
            if self.pairs[pair >> 3] & 1 << (pair & 7) and self.begins(data + at, size - at):
                return True
        return False

    cdef bint begins(self, const uint8_t* data, Py_ssize_t size) noexcept:
        cdef Py_ssize_t place = self.first[chain_of(data)]
        cdef Needle* needle
        if self.is_needle[data[0]]:
            return True
        while place >= 0:
            needle = self.needles + place
            # Most have another last byte: that is no call.
            if needle.size <= size and needle.data[needle.size - 1] == data[needle.size - 1]:
                if not memcmp(needle.data, data, needle.size):
                    return True
            place = needle.following
        return False
