# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Writes the frames of values, and fills chunks with them (the byte tables are in SPEC.md).

It judges nothing: a frame that no chunk holds is reported to the caller.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from ssop_codec._probes cimport ssop_frame_sent, ssop_sent_watchers
from ssop_codec._states cimport KIND_END, KIND_VALUE
from ssop_codec._wire cimport put_varint, varint_size


cdef class FrameWriter:
    """The frames of one document, in chunks of at most `buffer_bytes`."""

    def __cinit__(self, uint32_t buffer_bytes, uint64_t first_seq, uint32_t document):
        self.buffer_bytes = buffer_bytes
        self.length_size = <uint32_t>varint_size(buffer_bytes)
        self.first_seq = self.seq = first_seq
        self.document = document
        self.watchers = ssop_sent_watchers()
        self.out = <uint8_t*>malloc(<size_t>buffer_bytes + BLOCK_BYTES)
        if self.out is NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.taken, self.sealed_count):
            free(self.sealed[i].data)
        free(self.sealed)
        free(self.out)

    # -- chunks -----------------------------------------------------------------------------------------

    cdef int push(self, bytes frame) except -1:
        """Append a frame that was made elsewhere."""
        cdef Py_ssize_t size = len(frame)
        if self.out_size + size > self.buffer_bytes:
            self.seal()
        if size > self.buffer_bytes:
            # Only an END whose buffer holds less than its numbers comes here.
            _check(_append(self, <const uint8_t*>PyBytes_AS_STRING(frame), <uint32_t>size))
        else:
            memcpy(self.out + self.out_size, PyBytes_AS_STRING(frame), size)
            self.out_size += <uint32_t>size
        ssop_frame_sent(self.stream_id, self.seq, size)
        self.seq += 1
        return 0

    cdef int seal(self) except -1:
        """End the chunk that is being filled, if anything is in it."""
        return _check(seal_chunk(self))

    cdef bytes flush(self):
        """End the chunk that is being filled; the oldest one, or an empty one where nothing is pending."""
        if self.taken < self.sealed_count:
            self.seal()
            return self.take()
        chunk = PyBytes_FromStringAndSize(<char*>self.out, self.out_size)
        self.out_size = 0
        return chunk

    cdef bytes take(self):
        """The next sealed chunk, or an empty one."""
        cdef Chunk* chunk
        if self.taken == self.sealed_count:
            return b""
        chunk = &self.sealed[self.taken]
        data = PyBytes_FromStringAndSize(<char*>chunk.data, chunk.size)
        free(chunk.data)
        self.taken += 1
        if self.taken == self.sealed_count:
            self.taken = self.sealed_count = 0
        return data

    cdef list drain(self):
        """All sealed chunks."""
        chunks = []
        while self.taken < self.sealed_count:
            chunks.append(self.take())
        return chunks

    # -- frames -----------------------------------------------------------------------------------------

    cdef bint put_string(
        self, int kind, Place* place, uint32_t parts, const uint8_t* data, uint32_t size
    ) except -1:
        return write_string(self, kind, place, parts, data, size, False) or _refuse(self)

    cdef bint put_json(self, Place* place, const uint8_t* data, uint32_t size) except -1:
        """A number as it was written."""
        cdef uint8_t* at = begin_frame(self, KIND_VALUE, place, 0, 1 + varint_size(size) + size)
        if at is NULL:
            return _refuse(self)
        at[0] = 0x6A
        memcpy(put_varint(at + 1, size), data, size)
        return end_frame(self)

    cdef bint put_int(self, Place* place, long long value) except -1:
        return write_int(self, place, value) or _refuse(self)

    cdef bint put_double(self, Place* place, double value) except -1:
        return write_double(self, place, value) or _refuse(self)

    cdef bint put_bool(self, Place* place, bint value) except -1:
        return write_bool(self, place, value) or _refuse(self)

    cdef bint put_null(self, Place* place) except -1:
        return write_null(self, place) or _refuse(self)

    cdef bint put_close(self, Place* place, bint is_array, uint64_t count) except -1:
        return write_close(self, place, is_array, count) or _refuse(self)

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
        root.path = NULL
        end.frames = self.seq
        at = begin_frame(self, KIND_END, &root, 0, 2 + varint_size(body) + body)
        if at is NULL:
            return _refuse(self)
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


cdef bint _append(FrameWriter writer, const uint8_t* data, uint32_t size) noexcept nogil:
    """Keep a copy of a chunk until it is taken; False where there is no memory for it."""
    cdef void* block
    cdef uint32_t room
    if writer.sealed_count == writer.sealed_room:
        if writer.taken > writer.sealed_room >> 1:
            # Those that were taken make room; moving the others pays for itself.
            writer.sealed_count -= writer.taken
            memmove(writer.sealed, writer.sealed + writer.taken, writer.sealed_count * sizeof(Chunk))
            writer.taken = 0
        else:
            room = 2 * writer.sealed_room if writer.sealed_room else 8
            block = realloc(writer.sealed, room * sizeof(Chunk))
            if block is NULL:
                return False
            writer.sealed = <Chunk*>block
            writer.sealed_room = room
    block = malloc(size)
    if block is NULL:
        return False
    memcpy(block, data, size)
    writer.sealed[writer.sealed_count].data = <uint8_t*>block
    writer.sealed[writer.sealed_count].size = size
    writer.sealed_count += 1
    return True


cdef bint seal_chunk(FrameWriter writer) noexcept nogil:
    """End the chunk that is being filled, if anything is in it; False where there is no memory for it."""
    if writer.out_size:
        if not _append(writer, writer.out, writer.out_size):
            writer.lacks_memory = True
            return False
        writer.out_size = 0
    return True


cdef void tell_tracers(FrameWriter writer, uint64_t size) noexcept nogil:
    ssop_frame_sent(writer.stream_id, writer.seq, size)


cdef bint _refuse(FrameWriter writer) except -1:
    """A frame was not made: False where no chunk holds it."""
    if writer.lacks_memory:
        writer.lacks_memory = False
        raise MemoryError
    return False


cdef int _check(bint is_done) except -1:
    if not is_done:
        raise MemoryError
    return 0
