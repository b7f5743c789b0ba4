# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Reads chunks: rebuilds the document, counts what was lost, and scans heads for relays.

Fields and kinds that are not known are passed over, so that newer writers can be read. Everything a peer
can get wrong raises FrameError and nothing else.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ssop_codec._claim cimport ssop_claim, ssop_yield
from ssop_codec._document cimport Document
from ssop_codec._fields cimport UINT32, Field, next_frame
from ssop_codec._frame cimport (
    FIRST_MESH_KIND,
    HEADER,
    KIND_CLOSE,
    KIND_END,
    KIND_HEADER,
    KIND_VALUE,
    Frame,
    check_header,
    content_fits,
    path_of,
    read_frame,
)
from ssop_codec._probes cimport SSOP_HAS_PROBES, ssop_frame_received, ssop_next_stream
from ssop_codec._wire cimport get_varint

from .errors import CodecError, FrameError
from .limits import DEFAULT_LIMITS
HAS_PROBES = bool(SSOP_HAS_PROBES)

cdef enum:
    # Sequence numbers are below 2**63; the common ones are taken without another look.
    MAX_SEQ = 0x7FFFFFFF


cdef class Decoder:
    """Rebuilds the documents of one request from its chunks.

    It is used by one thread at a time: who comes while another thread is inside gets a CodecError.
    """

    cdef object limits
    cdef dict _documents
    cdef Document main
    cdef uint64_t received
    cdef uint64_t verified
    cdef bint broken
    cdef int is_claimed
    cdef readonly uint64_t stream_id    # what tracers know the stream by

    def __cinit__(self, *, limits=None, uint64_t stream_id=0):
        self.limits = limits or DEFAULT_LIMITS
        self.main = Document(self.limits)
        self._documents = {0: self.main}
        self.stream_id = stream_id or ssop_next_stream()

    @cython.binding(False)
    @cython.always_allow_keywords(False)
    def feed(self, chunk):
        """The frames of a chunk, or of several put together. Raises FrameError; the decoder is then of no
        further use."""
        cdef Py_buffer view
        if self.broken:
            raise FrameError("an earlier chunk was malformed")
        if type(chunk) is bytes:
            data = chunk
        else:
            # Frames keep the chunk for what is made of it later.
            PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
            try:
                data = PyBytes_FromStringAndSize(<char*>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        if not ssop_claim(&self.is_claimed):
            raise CodecError("the decoder is in use by another thread")
        try:
            return self._feed(data)
        except FrameError:
            self.broken = True
            raise
        finally:
            ssop_yield(&self.is_claimed)

    cdef list _feed(self, bytes chunk):
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(chunk)
        cdef const uint8_t* at = start
        cdef const uint8_t* end = start + PyBytes_GET_SIZE(chunk)
        cdef Field field
        cdef Frame frame
        cdef list frames = []
        cdef const uint8_t* before
        while at < end:
            before = at
            if not next_frame(&at, end, &field):
                continue
            frame = read_frame(chunk, field.data, field.data + field.size)
            if not content_fits(frame.kind, frame.content):
                raise FrameError("a frame holds the content of another kind")
            if frame.kind >= FIRST_MESH_KIND:
                PyList_Append(frames, frame)
                continue
            ssop_frame_received(self.stream_id, frame.number, at - before)
            if self._take(frame):
                PyList_Append(frames, frame)
        return frames

    cdef bint _take(self, Frame frame) except -1:
        """Apply a document frame; False for one that was here before."""
        cdef Document document = self.main
        self.received += 1
        if frame.document:
            document = self._document(frame.document)
        if frame.number == document.next_seq and document.end_frame is None and frame.number < MAX_SEQ:
            document.next_seq += 1
        elif not document.follows(frame.number):
            # What is dropped is well-formed all the same.
            if frame.content == HEADER:
                check_header(frame)
            path_of(frame)
            return False
        if KIND_VALUE <= frame.kind <= KIND_CLOSE:
            if not document.field_arrived(frame):
                return True
        else:
            if frame.kind == KIND_HEADER:
                document.header_arrived(frame)
            elif frame.kind == KIND_END:
                document.end_arrived(frame)
            elif frame.content == HEADER:
                check_header(frame)
            path_of(frame)
        self.verified += 1
        return True

    cdef Document _document(self, uint32_t number):
        document = self._documents.get(number)
        if document is None:
            if len(self._documents) >= self.limits.max_properties:
                raise FrameError("too many documents")
            document = self._documents[number] = Document(self.limits)
        return document

    @property
    def documents(self):
        """All documents by their number: 0 the main one, from 1 the arguments of tool calls."""
        return dict(self._documents)

    @property
    def verdict(self):
        """Verdict of the main document; 0 until its end arrived."""
        end = self.main.end
        return 0 if end is None else end.verdict

    @property
    def violation(self):
        """Violation of the main document, or None."""
        end = self.main.end
        return None if end is None else end.violation

    @property
    def end(self):
        """End of the main document, or None."""
        return self.main.end

    @property
    def header(self):
        """First header of the main document, or None."""
        return self.main.header

    @property
    def result(self):
        """The main document so far, as Python values. Not a copy: later frames add to it."""
        return self.main.result

    @property
    def text(self):
        """Of a plain text answer the text so far, else an empty string."""
        return self.main.text

    @property
    def frames_received(self):
        """Document frames that arrived, repeated ones included."""
        return self.received

    @property
    def frames_verified(self):
        """Document frames that were decoded and applied in sequence."""
        return self.verified

    @property
    def missing(self):
        """Document frames that were lost, as far as is known; 0 is falsy."""
        return sum(document.missing for document in self._documents.values())


@cython.binding(False)
@cython.always_allow_keywords(False)
def scan_heads(chunk):
    """`(kind, seq, node)` of each frame, without a look at values. Raises FrameError.

    Reads the first three fields, which SPEC.md puts in front of all others.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
    try:
        return _scan(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list _scan(const uint8_t* at, Py_ssize_t size):
    cdef const uint8_t* end = at + size
    cdef const uint8_t* inner
    cdef const uint8_t* inner_end
    cdef Field frame
    cdef uint64_t tag
    cdef uint64_t[4] head
    heads = []
    while at < end:
        if not next_frame(&at, end, &frame):
            continue
        inner = frame.data
        inner_end = inner + frame.size
        head[1] = head[2] = head[3] = 0
        while inner < inner_end:
            tag = inner[0]
            if tag != 0x08 and tag != 0x10 and tag != 0x18:
                break
            inner += 1
            if get_varint(&inner, inner_end, &head[tag >> 3]):
                raise FrameError("a head is cut")
        if head[2] > 0x7FFFFFFF or head[3] > UINT32:
            raise FrameError("a number is out of range")
        heads.append((head[2], head[1], head[3]))
    return heads
