# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""What a relay has to know of a chunk: kinds and numbers of its frames, in one pass and without a look at values.

And what it writes of its own.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._fields cimport UINT32, Field, next_frame
from ssop_codec._frame cimport FIRST_MESH_KIND, KIND_CLOSE, KIND_VALUE
from ssop_codec._wire cimport get_varint, put_varint, varint_size

from .constants import MESH_CONTENT_FIELD
from .errors import FrameError

cdef enum:
    # Kinds from here on, of later versions of the protocol, share a bit.
    LAST_BIT = 63
    ON_STACK = 64
    KINDS = 32

cdef struct Head:
    uint64_t seq
    uint32_t kind
    uint32_t node


cdef inline int read_head(const uint8_t* at, const uint8_t* end, Head* found) except -1:
    """The first three fields, which SPEC.md puts in front of all others."""
    cdef uint64_t[4] head
    cdef uint64_t tag
    head[1] = head[2] = head[3] = 0
    while at < end:
        tag = at[0]
        if tag != 0x08 and tag != 0x10 and tag != 0x18:
            break
        at += 1
        if get_varint(&at, end, &head[tag >> 3]):
            raise FrameError("a head is cut")
    if head[2] > 0x7FFFFFFF or head[3] > UINT32:
        raise FrameError("a number is out of range")
    found.seq = head[1]
    found.kind = <uint32_t>head[2]
    found.node = <uint32_t>head[3]
    return 0


cdef inline uint64_t bit_of(uint32_t kind) noexcept:
    return <uint64_t>1 << (kind if kind < LAST_BIT else LAST_BIT)


@cython.final
@cython.freelist(64)
cdef class Survey:
    """See the pure twin."""


@cython.binding(False)
@cython.always_allow_keywords(False)
def survey(bytes chunk not None):
    """Look over the frames of a chunk. Raises FrameError where it is none."""
    return look_over(chunk)


cdef Survey look_over(bytes chunk):
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(chunk)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(chunk)
    cdef Survey found = Survey.__new__(Survey)
    cdef Head[ON_STACK] some
    cdef Head head
    cdef Py_ssize_t waiting = 0
    cdef Field frame
    cdef uint64_t next_seq = 0
    cdef list packed = None
    found.is_clean = found.is_plain = found.is_row = True
    while at < end:
        if not next_frame(&at, end, &frame):
            # What is no frame is left out of what is passed on.
            found.is_clean = found.is_plain = False
            continue
        read_head(frame.data, frame.data + frame.size, &head)
        found.frames += 1
        found.kinds |= bit_of(head.kind)
        found.values += head.kind == KIND_VALUE
        if head.kind < FIRST_MESH_KIND:
            if not found.documents:
                found.first_seq = head.seq
            elif head.seq != next_seq:
                found.is_row = False
            next_seq = head.seq + 1
            found.last_seq = head.seq
            found.documents += 1
        if head.kind < KIND_VALUE or head.kind > KIND_CLOSE:
            found.is_plain = False
        if waiting == ON_STACK:
            if packed is None:
                packed = []
            packed.append(PyBytes_FromStringAndSize(<char*>some, waiting * sizeof(Head)))
            waiting = 0
        some[waiting] = head
        waiting += 1
    found.heads = PyBytes_FromStringAndSize(<char*>some, waiting * sizeof(Head))
    if packed is not None:
        packed.append(found.heads)
        found.heads = b"".join(packed)
    return found


@cython.binding(False)
@cython.always_allow_keywords(False)
def select(bytes chunk not None, uint64_t kinds):
    """Chunk bytes of the frames whose kinds have their bits in `kinds`. Raises FrameError."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(chunk)
    cdef const uint8_t* at = start
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(chunk)
    cdef const uint8_t* before
    cdef bytes kept = PyBytes_FromStringAndSize(NULL, end - at)
    cdef char* out = PyBytes_AS_STRING(kept)
    cdef Py_ssize_t size = 0
    cdef Field frame
    cdef Head head
    while at < end:
        before = at
        if not next_frame(&at, end, &frame):
            continue
        read_head(frame.data, frame.data + frame.size, &head)
        if kinds & bit_of(head.kind):
            memcpy(out + size, before, at - before)
            size += at - before
    return chunk if size == end - start else kept[:size]


@cython.binding(False)
@cython.always_allow_keywords(False)
def bodies(bytes chunk not None, uint32_t kind):
    """The bytes inside each frame of a kind, as `ssop.v1.Frame` reads them. Raises FrameError."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(chunk)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(chunk)
    cdef Field frame
    cdef Head head
    cdef list found = []
    while at < end:
        if not next_frame(&at, end, &frame):
            continue
        read_head(frame.data, frame.data + frame.size, &head)
        if head.kind == kind:
            found.append(PyBytes_FromStringAndSize(<char*>frame.data, <Py_ssize_t>frame.size))
    return found


def read_heads(bytes heads not None):
    """`(kind, seq, node)` of each frame, from what a survey packed."""
    cdef Py_ssize_t count = PyBytes_GET_SIZE(heads) // <Py_ssize_t>sizeof(Head), index
    cdef Head head
    cdef list found = []
    for index in range(count):
        memcpy(&head, PyBytes_AS_STRING(heads) + index * <Py_ssize_t>sizeof(Head), sizeof(Head))
        found.append((head.kind, head.seq, head.node))
    return found


cdef class Course:
    """See the stub."""

    def __cinit__(self, Py_ssize_t limit_bytes):
        self.limit_bytes = limit_bytes
        self.is_kept = limit_bytes > 0
        self.chunks = []

    @property
    def chunk(self):
        whole = b"".join(self.chunks)
        self.chunks = [whole] if whole else []
        return whole

    @cython.binding(False)
    def add(self, bytes chunk not None, uint64_t frames):
        self.last_seq += frames
        self.keep(chunk)

    @cython.binding(False)
    def follow(self, bytes chunk not None):
        return self.next_fields(chunk)

    cdef Survey next_fields(self, bytes chunk):
        """See `follow`."""
        cdef Survey found = look_over(chunk)
        if not (found.is_plain and found.is_row and found.frames) or found.first_seq != self.last_seq + 1:
            return None
        self.last_seq = found.last_seq
        self.keep(chunk)
        return found

    cdef int keep(self, bytes chunk) except -1:
        if not self.is_kept:
            return 0
        self.size_bytes += PyBytes_GET_SIZE(chunk)
        if self.size_bytes > self.limit_bytes:
            self.is_kept = False
            self.chunks = []
            return 0
        self.chunks.append(chunk)
        return 0


# The content field of each mesh kind; 0: no mesh kind.
cdef uint32_t[KINDS] content_fields
for _kind in range(KINDS):
    content_fields[_kind] = MESH_CONTENT_FIELD.get(_kind, 0)


@cython.binding(False)
@cython.always_allow_keywords(False)
def mesh_chunk(int kind, bytes payload not None):
    """See the stub."""
    cdef uint64_t size = PyBytes_GET_SIZE(payload), tag, whole
    cdef bytes chunk
    cdef uint8_t* at
    if kind < 0 or kind >= KINDS or not content_fields[kind]:
        raise ValueError(f"{kind} is not the kind of a mesh frame")
    tag = content_fields[kind] << 3 | 2
    # The kind is one byte, as are the tags of kind and frame.
    whole = 2 + varint_size(tag) + varint_size(size) + size
    chunk = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(1 + varint_size(whole) + whole))
    at = <uint8_t*>PyBytes_AS_STRING(chunk)
    at[0] = 0x0A
    at = put_varint(at + 1, whole)
    at[0] = 0x10
    at[1] = <uint8_t>kind
    at = put_varint(put_varint(at + 2, tag), size)
    memcpy(at, PyBytes_AS_STRING(payload), size)
    return chunk
