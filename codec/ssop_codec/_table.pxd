# cython: language_level=3
"""The field table of a document, as its reader needs it."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    INDEX_STEP, KEY_STEP, REF_STEP

cdef struct Entry:
    PyObject* token     # key of a property or index of a prefix item; NULL where a step says it
    bint is_key
    uint32_t index      # of a prefix item
    uint32_t parent
    uint32_t depth      # tokens from the root
    uint32_t dynamic    # of these, how many are in steps
    int64_t ref         # node that a reference names, -1 where this is none

cdef struct Step:
    int kind
    uint32_t number     # index or node
    const uint8_t* key
    uint64_t size
    const uint8_t* end  # of the field


cdef class FieldTable:
    cdef Entry* entries
    cdef uint32_t count
    cdef uint32_t room
    cdef uint32_t max_tokens
    cdef list tokens        # what the entries point to
    cdef dict chains        # tokens from the root or the target of a reference to a node, once asked for
    cdef list known_keys    # keys of steps that came lately, by a hash of their bytes; None until one came

    cdef int add(self, uint32_t parent, uint32_t step, object key, uint32_t index, int64_t ref) except -1
    cdef object key_of(self, const Step* step)
    cdef tuple resolve(self, uint32_t node, list steps)
    cdef tuple _chain(self, uint32_t start, uint32_t node)
    cdef int _fill(self, list out, tuple chain, list steps, Py_ssize_t first, Py_ssize_t last, bint is_last) except -1


cdef const uint8_t* read_step(const uint8_t* at, const uint8_t* end, Step* step) except NULL
cdef list steps_of(const uint8_t* at, const uint8_t* end)
