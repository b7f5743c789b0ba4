# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""What a relay has to know of a chunk: kinds and numbers of its frames, in one pass and without a look at values."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._fields cimport UINT32, Field, next_frame
from ssop_codec._frame cimport FIRST_MESH_KIND, KIND_CLOSE, KIND_VALUE
from ssop_codec._wire cimport get_varint

from .errors import FrameError

cdef enum:
    # Kinds from here on, of later versions of the protocol, share a bit.
    LAST_BIT = 63
    ON_STACK = 64

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

    cdef readonly uint64_t kinds
    cdef readonly Py_ssize_t frames
    cdef readonly Py_ssize_t documents
    cdef readonly bint is_clean
    cdef readonly bint is_plain
    cdef readonly bint is_row
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly bytes heads


@cython.binding(False)
@cython.always_allow_keywords(False)
def survey(bytes chunk not None):
    """Look over the frames of a chunk. Raises FrameError where it is none."""
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
