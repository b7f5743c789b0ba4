# cython: language_level=3
"""A document that is being rebuilt from frames."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

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


cdef class Document:
    cdef readonly object result     # the document so far
    cdef readonly uint64_t missing  # document frames that were lost, as far as is known
    cdef Frame header_frame         # the first; None until it came
    cdef Frame end_frame
    cdef FieldTable table
    cdef uint32_t node_count        # as the header says
    cdef uint64_t next_seq
    cdef uint32_t max_nodes
    cdef Py_ssize_t max_array_gap   # what is left of the cap
    cdef bint counts_once           # sizes of objects are those of distinct keys
    cdef bint is_text
    cdef list parts
    cdef tuple parts_of
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

    cdef bint follows(self, uint64_t seq) except -1
    cdef int header_arrived(self, Frame frame) except -1
    cdef int end_arrived(self, Frame frame) except -1
    cdef int field_arrived(self, Frame frame) except -1
