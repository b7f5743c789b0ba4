# cython: language_level=3
"""A frame that was read."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from ssop_codec._fields cimport Field
from ssop_codec._table cimport FieldTable

cdef enum:
    KIND_HEADER = 1
    KIND_VALUE = 2
    KIND_PART = 3
    KIND_CLOSE = 4
    KIND_END = 5
    FIRST_MESH_KIND = 16
    OBJECT_SIZE = 14
    ARRAY_SIZE = 15
    HEADER = 16
    END = 17


cdef class Frame:
    cdef uint64_t number
    cdef uint64_t count             # members of a closed container; else the place of the message, from `begin` on
    cdef readonly int kind
    cdef readonly uint32_t node
    cdef readonly uint32_t document
    cdef readonly uint32_t parts
    cdef uint32_t content           # number of the last content field
    cdef uint32_t message_size
    cdef uint32_t path_begin        # place of the path, from `begin` on; 0 and 0: none
    cdef uint32_t path_end
    cdef uint32_t size_bytes
    cdef bint completes             # a top-level property
    cdef readonly object value
    cdef object whole               # the string whose last part this is, or the container that it closes
    cdef FieldTable table           # None where the frame has no path
    cdef bytes chunk
    cdef Py_ssize_t begin           # place of the frame in the chunk


cdef list path_of(Frame frame)
cdef tuple tokens_of(Frame frame)
cdef const uint8_t* message_of(Frame frame) noexcept


cdef struct EndFields:
    uint64_t verdict
    uint64_t incomplete
    uint64_t finish
    uint64_t frames
    uint64_t[3] usage
    Field violation
    bint has_violation

cdef struct NodeFields:
    uint32_t node
    uint32_t parent
    uint32_t step
    uint32_t index
    uint32_t types
    int64_t ref         # -1: none
    bint required

cdef struct HeaderFields:
    uint32_t wire_version
    uint32_t node_count
    uint32_t buffer_bytes
    bint is_text
    bint has_hash


cdef Frame read_frame(bytes chunk, const uint8_t* at, const uint8_t* end)
cdef int check_header(Frame frame) except -1
cdef inline bint content_fits(int kind, uint32_t content) noexcept:
    if kind == KIND_VALUE:
        return 8 <= content <= 13
    if kind == KIND_PART:
        return content == 8
    if kind == KIND_CLOSE:
        return content == OBJECT_SIZE or content == ARRAY_SIZE
    if kind == KIND_HEADER:
        return content == HEADER
    if kind == KIND_END:
        return content == END
    if 16 <= kind <= 20:
        return content == <uint32_t>(kind + 2)
    return True


cdef int read_end(const uint8_t* at, const uint8_t* end, EndFields* fields) except -1
cdef int read_header(const uint8_t* at, const uint8_t* end, HeaderFields* fields) except -1
cdef object read_node(Field* field, NodeFields* node)
