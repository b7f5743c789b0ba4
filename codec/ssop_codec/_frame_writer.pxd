# cython: language_level=3
"""Frames of values, and the chunks that hold them."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


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


cdef class FrameWriter:
    cdef uint8_t* out           # the chunk that is being filled
    cdef uint32_t out_size
    cdef uint32_t buffer_bytes  # of a chunk, at most
    cdef uint32_t length_size   # bytes of a varint that holds any length within the buffer
    cdef list sealed            # chunks; those before `taken` are gone
    cdef Py_ssize_t taken
    cdef uint64_t seq           # of the next frame
    cdef uint64_t first_seq
    cdef uint32_t document
    cdef uint64_t stream_id     # for tracers
    cdef bint has_field         # a VALUE, PART or CLOSE frame was made

    cdef int push(self, bytes frame) except -1
    cdef int seal(self) except -1
    cdef bytes take(self)
    cdef list drain(self)
    cdef uint32_t room(self, Place* place, uint32_t parts) noexcept
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
