# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Writes the frames of values, and fills chunks with them (the byte tables are in SPEC.md).

It judges nothing: a frame that no chunk holds is reported to the caller.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ssop_codec._probes cimport ssop_frame_sent
from ssop_codec._states cimport KIND_CLOSE, KIND_END, KIND_VALUE
from ssop_codec._wire cimport put_varint, varint_size


cdef class FrameWriter:
    """The frames of one document, in chunks of at most `buffer_bytes`."""

    def __cinit__(self, uint32_t buffer_bytes, uint64_t first_seq, uint32_t document):
        self.buffer_bytes = buffer_bytes
        self.length_size = <uint32_t>varint_size(buffer_bytes)
        self.first_seq = self.seq = first_seq
        self.document = document
        self.sealed = []
        self.out = <uint8_t*>malloc(buffer_bytes)
        if self.out is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.out)

    # -- chunks -----------------------------------------------------------------------------------------

    cdef int push(self, bytes frame) except -1:
        """Append a frame that was made elsewhere."""
        cdef Py_ssize_t size = len(frame)
        if self.out_size + size > self.buffer_bytes:
            self.seal()
        if size > self.buffer_bytes:
            # Only an END whose buffer holds less than its numbers comes here.
            self.sealed.append(frame)
        else:
            memcpy(self.out + self.out_size, PyBytes_AS_STRING(frame), size)
            self.out_size += <uint32_t>size
        ssop_frame_sent(self.stream_id, self.seq, size)
        self.seq += 1
        return 0

    cdef int seal(self) except -1:
        """End the chunk that is being filled, if anything is in it."""
        if self.out_size:
            self.sealed.append(PyBytes_FromStringAndSize(<char*>self.out, self.out_size))
            self.out_size = 0
        return 0

    cdef bytes take(self):
        """The next sealed chunk, or an empty one."""
        if self.taken == len(self.sealed):
            return b""
        # A popped head would make many small chunks cost their square.
        chunk = self.sealed[self.taken]
        self.sealed[self.taken] = None
        self.taken += 1
        if self.taken == len(self.sealed):
            self.sealed.clear()
            self.taken = 0
        return chunk

    cdef list drain(self):
        """All sealed chunks."""
        chunks = self.sealed[self.taken :]
        self.sealed = []
        self.taken = 0
        return chunks

    # -- frames -----------------------------------------------------------------------------------------

    cdef uint32_t room(self, Place* place, uint32_t parts) noexcept:
        """Bytes of string that fit a frame here, whatever the number of parts will be."""
        cdef uint64_t used = (
            1 + self.length_size + 1 + varint_size(self.seq) + 2 + place.path_size
            + 1 + varint_size(parts + 1) + 1 + self.length_size
        )
        if place.number:
            used += 1 + varint_size(place.number)
        if self.document:
            used += 1 + varint_size(self.document)
        return <uint32_t>(self.buffer_bytes - used) if used < self.buffer_bytes else 0

    cdef bint put_string(
        self, int kind, Place* place, uint32_t parts, const uint8_t* data, uint32_t size
    ) except -1:
        cdef uint8_t* at = _begin(self, kind, place, parts, 1 + varint_size(size) + size)
        if at is NULL:
            return False
        at[0] = 0x42
        memcpy(put_varint(at + 1, size), data, size)
        return _end(self)

    cdef bint put_json(self, Place* place, const uint8_t* data, uint32_t size) except -1:
        """A number as it was written."""
        cdef uint8_t* at = _begin(self, KIND_VALUE, place, 0, 1 + varint_size(size) + size)
        if at is NULL:
            return False
        at[0] = 0x6A
        memcpy(put_varint(at + 1, size), data, size)
        return _end(self)

    cdef bint put_int(self, Place* place, long long value) except -1:
        cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
        cdef uint8_t* at = _begin(self, KIND_VALUE, place, 0, 1 + varint_size(zigzag))
        if at is NULL:
            return False
        at[0] = 0x50
        put_varint(at + 1, zigzag)
        return _end(self)

    cdef bint put_double(self, Place* place, double value) except -1:
        cdef uint64_t bits
        cdef int i
        cdef uint8_t* at = _begin(self, KIND_VALUE, place, 0, 9)
        if at is NULL:
            return False
        memcpy(&bits, &value, 8)
        at[0] = 0x49
        for i in range(8):
            at[1 + i] = <uint8_t>(bits >> (8 * i))
        return _end(self)

    cdef bint put_bool(self, Place* place, bint value) except -1:
        cdef uint8_t* at = _begin(self, KIND_VALUE, place, 0, 2)
        if at is NULL:
            return False
        at[0] = 0x58
        at[1] = value
        return _end(self)

    cdef bint put_null(self, Place* place) except -1:
        cdef uint8_t* at = _begin(self, KIND_VALUE, place, 0, 2)
        if at is NULL:
            return False
        at[0] = 0x60
        at[1] = 0
        return _end(self)

    cdef bint put_close(self, Place* place, bint is_array, uint64_t count) except -1:
        cdef uint8_t* at = _begin(self, KIND_CLOSE, place, 0, 1 + varint_size(count))
        if at is NULL:
            return False
        at[0] = 0x78 if is_array else 0x70
        put_varint(at + 1, count)
        return _end(self)

    cdef int put_end(self, End* end) except -1:
        """The last frame of a document without a violation. Usage gives way where the buffer is small."""
        cdef uint64_t usage = 0
        cdef uint64_t body = 0
        cdef uint64_t room
        cdef Place root
        cdef uint8_t* at
        cdef int i
        for i in range(3):
            usage += _field_size(end.usage[i])
        body = (
            _field_size(end.verdict) + _field_size(end.incomplete_reason) + _field_size(end.finish_reason)
            + _field_size(self.seq)
        )
        if usage:
            usage += 1 + varint_size(usage)
            # What a content field of any length leaves, as for a header.
            room = 3 + 2 * self.length_size + 1 + varint_size(self.seq) + 2
            if self.document:
                room += 1 + varint_size(self.document)
            if room + body + usage > self.buffer_bytes:
                usage = 0
        body += usage
        root.number = root.path_size = 0
        end.frames = self.seq
        at = _begin(self, KIND_END, &root, 0, 2 + varint_size(body) + body)
        if at is NULL:
            return False
        at[0] = 0x8A
        at[1] = 0x01
        at = put_varint(at + 2, body)
        at = _put_uint(at, 0x08, end.verdict)
        at = _put_uint(at, 0x18, end.incomplete_reason)
        at = _put_uint(at, 0x20, end.finish_reason)
        at = _put_uint(at, 0x28, end.frames)
        if usage:
            at[0] = 0x32
            at = put_varint(at + 1, usage - 2)
            for i in range(3):
                at = _put_uint(at, <uint8_t>(0x08 + 8 * i), end.usage[i])
        return True


cdef inline uint64_t _field_size(uint64_t value) noexcept:
    """Bytes of a varint field, which is left out where it is 0."""
    return 1 + varint_size(value) if value else 0


cdef inline uint8_t* _put_uint(uint8_t* at, uint8_t tag, uint64_t value) noexcept:
    if not value:
        return at
    at[0] = tag
    return put_varint(at + 1, value)


cdef uint8_t* _begin(FrameWriter writer, int kind, Place* place, uint32_t parts, uint64_t content) except? NULL:
    """Write the head of a frame; returns the place of its `content` bytes, NULL where no chunk holds it."""
    cdef uint64_t body = 1 + varint_size(writer.seq) + 2 + place.path_size + content
    if place.number:
        body += 1 + varint_size(place.number)
    if parts:
        body += 1 + varint_size(parts)
    if writer.document:
        body += 1 + varint_size(writer.document)
    cdef uint64_t total = 1 + varint_size(body) + body
    if writer.out_size + total > writer.buffer_bytes:
        if total > writer.buffer_bytes:
            return NULL
        writer.seal()
    cdef uint8_t* at = writer.out + writer.out_size
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
        memcpy(at, place.path, place.path_size)
        at += place.path_size
    if parts:
        at[0] = 0x28
        at = put_varint(at + 1, parts)
    if writer.document:
        at[0] = 0x30
        at = put_varint(at + 1, writer.document)
    ssop_frame_sent(writer.stream_id, writer.seq, total)
    writer.seq += 1
    return at


cdef bint _end(FrameWriter writer) except -1:
    """The first field leaves at once."""
    if not writer.has_field:
        writer.has_field = True
        writer.seal()
    return True
