# cython: language_level=3
"""The values of a document so far."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._frame cimport Frame
from ssop_codec._table cimport FieldTable, Step


# A path that is walked upwards: `steps` of its first steps are left, those of its last stretch from `first` on;
# the stretch begins at node `start`.
cdef struct Walk:
    uint32_t node
    uint32_t steps
    uint32_t first
    uint32_t start

# An open container: its token in the one around it and its address, the node and the bytes of the steps.
cdef struct Level:
    PyObject* container
    uint32_t node
    bint is_typed       # the node is that of the container, and not of one around it
    Py_ssize_t path_size

# What leads from a container to a member: a key, or an index where there is none.
cdef struct Token:
    PyObject* key       # borrowed
    bint is_key
    uint32_t index
    const Step* step    # a key that is not made yet


cdef class Tree:
    cdef object result              # the document so far
    cdef bint has_gaps              # frames were lost
    cdef bint counts_once           # sizes of objects are those of distinct keys
    cdef FieldTable table
    cdef Py_ssize_t max_array_gap   # what is left of the cap
    # The path of the frame that is read.
    cdef Step* steps
    cdef uint32_t step_count
    cdef uint32_t step_room
    cdef const uint8_t* path
    cdef Walk* walks
    cdef Token* ways
    cdef uint32_t walk_room
    # containers[i] is the container at the path tokens[:i]; only these may still grow.
    cdef list containers
    cdef list tokens
    cdef Level* levels
    cdef uint32_t level_count
    cdef uint32_t level_room
    cdef uint8_t* address           # steps of the innermost container
    cdef Py_ssize_t address_room

    cdef int put(self, Frame frame, object value) except -1
    cdef int close(self, Frame frame) except -1
