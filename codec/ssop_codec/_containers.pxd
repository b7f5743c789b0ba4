# cython: language_level=3
"""Objects and arrays that are open: their members, and the place of each."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from ssop_codec._program cimport NODE_UNTYPED
from ssop_codec._reader cimport Level, Reader
from ssop_codec._scan cimport Points
from ssop_codec._wire cimport put_varint, varint_size

cdef enum:
    STEP_BYTES = 13     # an index or a reference takes no more of a path

cdef int open_container(Reader reader, bint is_array, uint64_t offset) except -1
cdef int begin_item(Reader reader, uint64_t offset) except -1
cdef int close_container(Reader reader, uint64_t offset) except -1
cdef int end_scalar(Reader reader, uint64_t end) except -1
cdef int begin_key(Reader reader, uint64_t offset) except -1
cdef int read_key(Reader reader, const uint8_t* data, uint32_t size, uint64_t offset, int step) except -1
cdef int judge_points_of_key(Reader reader, const Points* points, uint32_t count, uint64_t offset) except -1
cdef int fail_empty(Reader reader, uint64_t offset) except -1
cdef int end_key(Reader reader, uint64_t offset) except -1


cdef inline void enter(Reader reader, const Level* level, int32_t child) noexcept nogil:
    """Go on with the rules of `child`, or with those of untyped values."""
    if child == NODE_UNTYPED:
        reader.node = &reader.program.nodes[reader.program.node_count]
        reader.place.number = level.child_number
    else:
        reader.node = &reader.program.nodes[child]
        reader.place.number = <uint32_t>child


cdef inline void add_step(Reader reader, uint8_t tag, uint64_t value) noexcept nogil:
    """Append an index (tag 08) or a reference (18) to the path; the buffer has room for one beyond the limit."""
    cdef uint8_t* at = reader.place.path + reader.place.path_size
    at[0] = 0x22
    at[1] = <uint8_t>(1 + varint_size(value))
    at[2] = tag
    at = put_varint(at + 3, value)
    reader.place.path_size = <uint32_t>(at - reader.place.path)


cdef inline Level* push_level(Reader reader, bint is_array) noexcept nogil:
    """Make the value at hand the innermost container; there is room for its level, and for a step."""
    cdef Level* level = &reader.levels[reader.depth]
    cdef Level* above
    cdef uint32_t at = <uint32_t>(reader.node.array_at if is_array else reader.node.object_at)
    cdef uint32_t i
    level.place = reader.place
    level.is_array = is_array
    level.count = 0
    level.next_key = 0
    level.child_key = -1
    level.has_key_set = False
    level.node = &reader.program.nodes[at]
    if level.node != reader.node:
        # A reference: the children stand in the subtree of another node.
        level.child_number = at
        add_step(reader, 0x18, reader.place.number)
    else:
        level.child_number = reader.place.number
    level.base_path = reader.place.path_size
    if reader.depth:
        above = level - 1
        level.seen = above.seen + (0 if above.is_array else above.node.words)
    else:
        level.seen = 0
    if not is_array:
        for i in range(level.node.words):
            reader.seen[level.seen + i] = 0
    reader.depth += 1
    return level


cdef inline bint has_required(Reader reader, const Level* level) noexcept nogil:
    """Whether the open object has all the properties that it must have."""
    cdef uint32_t i
    for i in range(level.node.words):
        if level.node.required[i] & ~reader.seen[level.seen + i]:
            return False
    return True


cdef inline uint64_t key_step_bytes(uint32_t size) noexcept nogil:
    """What a key of the model takes of a path."""
    cdef uint64_t body = 1 + varint_size(size) + size
    return 1 + varint_size(body) + body


cdef inline uint8_t* begin_key_step(Reader reader, uint32_t size) noexcept nogil:
    """Append the step of a key of the model, but for its `size` bytes; returns the place of these."""
    cdef uint8_t* at = reader.place.path + reader.place.path_size
    reader.place.path_size += <uint32_t>key_step_bytes(size)
    at[0] = 0x22
    at = put_varint(at + 1, 1 + varint_size(size) + size)
    at[0] = 0x12
    return put_varint(at + 1, size)
