# cython: language_level=3
"""Frames of values, and the chunks that hold them.

Frames are made here, inline, for the reader of whole tokens; `_frame_writer` has the probe and the chunks.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._scan cimport ssop_copy, ssop_unlikely
from ssop_codec._states cimport KIND_CLOSE, KIND_VALUE
from ssop_codec._wire cimport put_varint, varint_size

cdef enum:
    BLOCK_BYTES = 32    # what may be written behind a chunk while it is filled

cdef struct Place:
    uint32_t number     # table node
    uint32_t path_size
    uint8_t* path       # steps as frames carry them


cdef struct End:
    uint64_t verdict
    uint64_t incomplete_reason
    uint64_t finish_reason
    uint64_t frames
    uint64_t[3] usage       # input, output and cached tokens


cdef struct Chunk:
    uint8_t* data
    uint32_t size


cdef class FrameWriter:
    cdef uint8_t* out           # the chunk that is being filled
    cdef uint32_t out_size
    cdef uint32_t buffer_bytes  # of a chunk, at most
    cdef uint32_t length_size   # bytes of a varint that holds any length within the buffer
    cdef Chunk* sealed          # chunks; those before `taken` are gone
    cdef uint32_t sealed_count
    cdef uint32_t sealed_room
    cdef uint32_t taken
    cdef uint64_t seq           # of the next frame
    cdef uint64_t first_seq
    cdef uint32_t document
    cdef uint64_t stream_id     # for tracers
    cdef const volatile unsigned short* watchers    # how many tracers listen
    cdef bint has_field         # a VALUE, PART or CLOSE frame was made
    cdef bint lacks_memory

    cdef int push(self, bytes frame) except -1
    cdef int seal(self) except -1
    cdef bytes flush(self)
    cdef bytes take(self)
    cdef list drain(self)
    cdef int put_end(self, End* end) except -1
    # Those below return whether the frame fits a chunk; one that does not is not made.
    cdef bint put_string(
        self, int kind, Place* place, uint32_t parts, const uint8_t* data, uint32_t size
    ) except -1
    cdef bint put_json(self, Place* place, const uint8_t* data, uint32_t size) except -1
    cdef bint put_int(self, Place* place, long long value) except -1
    cdef bint put_double(self, Place* place, double value) except -1
    cdef bint put_bool(self, Place* place, bint value) except -1
    cdef bint put_null(self, Place* place) except -1
    cdef bint put_close(self, Place* place, bint is_array, uint64_t count) except -1


cdef bint seal_chunk(FrameWriter writer) noexcept nogil
cdef void tell_tracers(FrameWriter writer, uint64_t size) noexcept nogil


# Those below return whether the frame was made: a chunk holds it and there is memory for its chunk.


cdef inline uint32_t room_of(FrameWriter writer, const Place* place, uint32_t parts) noexcept nogil:
    """Bytes of string that fit a frame here, whatever the number of parts will be."""
    cdef uint64_t used = (
        1 + writer.length_size + 1 + varint_size(writer.seq) + 2 + place.path_size
        + 1 + varint_size(<uint64_t>parts + 1) + 1 + writer.length_size
    )
    if place.number:
        used += 1 + varint_size(place.number)
    if writer.document:
        used += 1 + varint_size(writer.document)
    return <uint32_t>(writer.buffer_bytes - used) if used < writer.buffer_bytes else 0


cdef inline uint8_t* begin_frame(
    FrameWriter writer, int kind, const Place* place, uint32_t parts, uint64_t content
) noexcept nogil:
    """Write the head of a frame; returns the place of its `content` bytes, NULL where it is not made. Up to
    BLOCK_BYTES may be written behind the content."""
    cdef uint64_t body = 1 + varint_size(writer.seq) + 2 + place.path_size + content
    cdef uint64_t total
    cdef uint8_t* at
    if place.number:
        body += 1 + varint_size(place.number)
    if parts:
        body += 1 + varint_size(parts)
    if writer.document:
        body += 1 + varint_size(writer.document)
    total = 1 + varint_size(body) + body
    if ssop_unlikely(writer.out_size + total > writer.buffer_bytes):
        if total > writer.buffer_bytes or not seal_chunk(writer):
            return NULL
    at = writer.out + writer.out_size
    writer.out_size += <uint32_t>total
    at[0] = 0x0A
    at = put_varint(at + 1, body)
    at[0] = 0x08
    at = put_varint(at + 1, writer.seq)
    at[0] = 0x10
    at[1] = <uint8_t>kind
    at += 2
    if place.number:
        at[0] = 0x18
        at = put_varint(at + 1, place.number)
    if place.path_size:
        ssop_copy(at, place.path, place.path_size, True)
        at += place.path_size
    if parts:
        at[0] = 0x28
        at = put_varint(at + 1, parts)
    if writer.document:
        at[0] = 0x30
        at = put_varint(at + 1, writer.document)
    if ssop_unlikely(writer.watchers[0]):
        tell_tracers(writer, total)
    writer.seq += 1
    return at


cdef inline bint end_frame(FrameWriter writer) noexcept nogil:
    """The first field leaves at once."""
    if ssop_unlikely(not writer.has_field):
        writer.has_field = True
        # Without memory it leaves with the next ones.
        seal_chunk(writer)
    return True


cdef inline bint write_string(
    FrameWriter writer, int kind, const Place* place, uint32_t parts, const uint8_t* data, uint32_t size, bint has_slack
) noexcept nogil:
    """`has_slack`: BLOCK_BYTES from `data` on may be read."""
    cdef uint8_t* at = begin_frame(writer, kind, place, parts, 1 + varint_size(size) + size)
    if ssop_unlikely(at is NULL):
        return False
    at[0] = 0x42
    ssop_copy(put_varint(at + 1, size), data, size, has_slack)
    return end_frame(writer)


cdef inline bint write_int(FrameWriter writer, const Place* place, int64_t value) noexcept nogil:
    cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef uint8_t* at = begin_frame(writer, KIND_VALUE, place, 0, 1 + varint_size(zigzag))
    if ssop_unlikely(at is NULL):
        return False
    at[0] = 0x50
    put_varint(at + 1, zigzag)
    return end_frame(writer)


cdef inline bint write_double(FrameWriter writer, const Place* place, double value) noexcept nogil:
    cdef uint64_t bits
    cdef int i
    cdef uint8_t* at = begin_frame(writer, KIND_VALUE, place, 0, 9)
    if ssop_unlikely(at is NULL):
        return False
    memcpy(&bits, &value, 8)
    at[0] = 0x49
    for i in range(8):
        at[1 + i] = <uint8_t>(bits >> (8 * i))
    return end_frame(writer)


cdef inline bint write_bool(FrameWriter writer, const Place* place, bint value) noexcept nogil:
    cdef uint8_t* at = begin_frame(writer, KIND_VALUE, place, 0, 2)
    if ssop_unlikely(at is NULL):
        return False
    at[0] = 0x58
    at[1] = value
    return end_frame(writer)


cdef inline bint write_null(FrameWriter writer, const Place* place) noexcept nogil:
    cdef uint8_t* at = begin_frame(writer, KIND_VALUE, place, 0, 2)
    if ssop_unlikely(at is NULL):
        return False
    at[0] = 0x60
    at[1] = 0
    return end_frame(writer)


cdef inline bint write_close(FrameWriter writer, const Place* place, bint is_array, uint64_t count) noexcept nogil:
    cdef uint8_t* at = begin_frame(writer, KIND_CLOSE, place, 0, 1 + varint_size(count))
    if ssop_unlikely(at is NULL):
        return False
    at[0] = 0x78 if is_array else 0x70
    put_varint(at + 1, count)
    return end_frame(writer)
