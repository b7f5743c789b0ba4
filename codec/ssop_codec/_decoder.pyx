# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reads chunks: rebuilds the document, counts what was lost, and scans heads for relays.

Fields and kinds that are not known are passed over, so that newer writers can be read. Everything a peer
can get wrong raises FrameError and nothing else.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._document cimport Document
from ssop_codec._wire cimport get_varint

from decimal import Decimal

from .errors import FrameError, Violation
from .frames import End, Header
from .limits import Limits
from .rules import FieldNode
from .wire import RefStep

cdef enum:
    KIND_HEADER = 1
    KIND_VALUE = 2
    KIND_PART = 3
    KIND_CLOSE = 4
    KIND_END = 5
    FIRST_MESH_KIND = 16

cdef struct Field:
    uint32_t number
    uint32_t wire           # 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
    uint64_t value          # varint, or the bytes of wire types 1 and 5
    const uint8_t* data     # wire type 2
    uint64_t size


cdef int next_field(const uint8_t** at, const uint8_t* end, Field* field) except -1:
    """Read one field and move behind it."""
    cdef uint64_t tag
    if get_varint(at, end, &tag):
        raise FrameError("a tag is cut or too long")
    field.wire = <uint32_t>(tag & 7)
    if tag >> 3 == 0 or tag >> 3 >= 1 << 29:
        raise FrameError("a field number is out of range")
    field.number = <uint32_t>(tag >> 3)
    field.value = 0
    if field.wire == 0:
        if get_varint(at, end, &field.value):
            raise FrameError("a varint is cut or too long")
    elif field.wire == 2:
        if get_varint(at, end, &field.size) or field.size > <uint64_t>(end - at[0]):
            raise FrameError("a field is longer than what holds it")
        field.data = at[0]
        at[0] += field.size
    elif field.wire == 1 or field.wire == 5:
        field.size = 8 if field.wire == 1 else 4
        if field.size > <uint64_t>(end - at[0]):
            raise FrameError("a field is longer than what holds it")
        memcpy(&field.value, at[0], field.size)
        at[0] += field.size
    else:
        raise FrameError("a wire type is not known")
    return 0


cdef int expect(Field* field, uint32_t wire) except -1:
    if field.wire != wire:
        raise FrameError("a field has the wire type of another")
    return 0


cdef str text_of(Field* field):
    expect(field, 2)
    try:
        return PyUnicode_DecodeUTF8(<char*>field.data, <Py_ssize_t>field.size, NULL)
    except UnicodeDecodeError:
        raise FrameError("a text is not UTF-8") from None


cdef bytes bytes_of(Field* field):
    expect(field, 2)
    return PyBytes_FromStringAndSize(<char*>field.data, <Py_ssize_t>field.size)


cdef uint64_t uint_of(Field* field, uint64_t limit) except? 0:
    expect(field, 0)
    if field.value > limit:
        raise FrameError("a number is out of range")
    return field.value


cdef enum:
    UINT32 = 0xFFFFFFFF


cdef class Frame:
    """One frame, read-only."""

    cdef uint64_t number
    cdef readonly int kind
    cdef readonly uint32_t node
    cdef readonly uint32_t document
    cdef readonly uint32_t parts
    cdef readonly object value
    cdef readonly object size
    cdef readonly object header
    cdef readonly object end
    cdef readonly object mesh
    cdef readonly tuple tokens
    cdef dict completed
    cdef bytes chunk
    cdef Py_ssize_t begin
    cdef Py_ssize_t size_bytes
    cdef list steps
    cdef uint32_t content
    cdef str pointer

    @property
    def seq(self):
        """Position in the document, from 1; 0 on mesh frames."""
        return self.number

    @property
    def raw(self):
        """The bytes of the frame, without the tag and length in front of it."""
        return self.chunk[self.begin : self.begin + self.size_bytes]

    @property
    def delta(self):
        """The top-level properties that this frame completes, whole."""
        return {} if self.completed is None else self.completed

    @property
    def is_part(self):
        """The value goes on in the next frames."""
        return self.kind == KIND_PART

    @property
    def path(self):
        """JSON Pointer of the value."""
        if self.pointer is None:
            self.pointer = "".join(
                ["/" + str(token).replace("~", "~0").replace("/", "~1") for token in self.tokens]
            )
        return self.pointer

    def __repr__(self):
        return f"Frame(seq={self.seq}, kind={self.kind}, path={self.path!r}, value={self.value!r})"


cdef object read_step(Field* field):
    """A path step: int, str or RefStep."""
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef Field inner
    expect(field, 2)
    end = at + field.size
    step = None
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            step = uint_of(&inner, UINT32)
        elif inner.number == 2:
            step = text_of(&inner)
        elif inner.number == 3:
            step = RefStep(uint_of(&inner, UINT32))
    if step is None:
        raise FrameError("a path step is empty")
    return step


cdef object read_node(Field* field):
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef Field inner
    cdef uint64_t node = 0, parent = 0, step = 0, index = 0, types = 0, required = 0
    expect(field, 2)
    end = at + field.size
    key = ""
    ref_node = None
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            node = uint_of(&inner, UINT32)
        elif inner.number == 2:
            parent = uint_of(&inner, UINT32)
        elif inner.number == 3:
            step = uint_of(&inner, UINT32)
        elif inner.number == 4:
            key = text_of(&inner)
        elif inner.number == 5:
            index = uint_of(&inner, UINT32)
        elif inner.number == 6:
            types = uint_of(&inner, UINT32)
        elif inner.number == 7:
            ref_node = uint_of(&inner, UINT32)
        elif inner.number == 8:
            required = uint_of(&inner, 1)
    return FieldNode(node, parent, step, key, index, types, ref_node, bool(required))


cdef object read_header(Field* field):
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef Field inner
    expect(field, 2)
    end = at + field.size
    cdef uint64_t wire_version = 0, node_count = 0, buffer_bytes = 0, is_text = 0
    codec_version = tool_name = tool_call_id = ""
    schema_hash = b""
    nodes = []
    annotations = []
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            wire_version = uint_of(&inner, UINT32)
        elif inner.number == 2:
            codec_version = text_of(&inner)
        elif inner.number == 3:
            schema_hash = bytes_of(&inner)
        elif inner.number == 4:
            node_count = uint_of(&inner, UINT32)
        elif inner.number == 5:
            buffer_bytes = uint_of(&inner, UINT32)
        elif inner.number == 6:
            nodes.append(read_node(&inner))
        elif inner.number == 7:
            annotations.append(text_of(&inner))
        elif inner.number == 8:
            is_text = uint_of(&inner, 1)
        elif inner.number == 9:
            tool_name = text_of(&inner)
        elif inner.number == 10:
            tool_call_id = text_of(&inner)
    return Header(
        wire_version, codec_version, schema_hash, node_count, buffer_bytes, tuple(nodes),
        tuple(annotations), bool(is_text), tool_name, tool_call_id,
    )


cdef object read_violation(Field* field):
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef Field inner
    expect(field, 2)
    end = at + field.size
    cdef uint64_t offset = 0
    rule = pointer = expected = ""
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            rule = text_of(&inner)
        elif inner.number == 2:
            pointer = text_of(&inner)
        elif inner.number == 3:
            expect(&inner, 0)
            offset = inner.value
        elif inner.number == 4:
            expected = text_of(&inner)
    return Violation(rule, pointer, offset, expected)


cdef object read_end(Field* field):
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef const uint8_t* usage
    cdef const uint8_t* usage_end
    cdef Field inner
    cdef Field count
    cdef uint64_t verdict = 0, incomplete = 0, finish = 0, frames = 0
    cdef uint64_t[3] counts
    counts[0] = counts[1] = counts[2] = 0
    expect(field, 2)
    end = at + field.size
    violation = None
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            verdict = uint_of(&inner, UINT32)
        elif inner.number == 2:
            violation = read_violation(&inner)
        elif inner.number == 3:
            incomplete = uint_of(&inner, UINT32)
        elif inner.number == 4:
            finish = uint_of(&inner, UINT32)
        elif inner.number == 5:
            expect(&inner, 0)
            frames = inner.value
        elif inner.number == 6:
            expect(&inner, 2)
            usage = inner.data
            usage_end = usage + inner.size
            while usage < usage_end:
                next_field(&usage, usage_end, &count)
                if 1 <= count.number <= 3:
                    counts[count.number - 1] = uint_of(&count, UINT32)
    return End(verdict, violation, incomplete, finish, frames, counts[0], counts[1], counts[2])


cdef object read_number(Field* field):
    """A number that neither int64 nor double holds."""
    cdef bytes text = bytes_of(field)
    cdef const uint8_t* at = text
    cdef Py_ssize_t i
    cdef bint is_integer = True
    cdef Py_ssize_t size = len(text)
    if size > 4096:
        raise FrameError("a number is too long")
    for i in range(size):
        if not (0x30 <= at[i] <= 0x39 or (i == 0 and at[i] == 0x2D)):
            is_integer = False
            if at[i] not in b"+-.eE":
                raise FrameError("a number is not JSON")
    try:
        return int(text) if is_integer else Decimal(text.decode())
    except (ValueError, ArithmeticError):
        raise FrameError("a number is not JSON") from None


cdef Frame read_frame(const uint8_t* at, const uint8_t* end):
    cdef Frame frame = Frame.__new__(Frame)
    cdef Field field
    cdef double number
    frame.tokens = ()
    while at < end:
        next_field(&at, end, &field)
        if field.number == 1:
            expect(&field, 0)
            frame.number = field.value
        elif field.number == 2:
            frame.kind = <int>uint_of(&field, 0x7FFFFFFF)
        elif field.number == 3:
            frame.node = <uint32_t>uint_of(&field, UINT32)
        elif field.number == 4:
            if frame.steps is None:
                frame.steps = []
            frame.steps.append(read_step(&field))
        elif field.number == 5:
            frame.parts = <uint32_t>uint_of(&field, UINT32)
        elif field.number == 6:
            frame.document = <uint32_t>uint_of(&field, UINT32)
        elif field.number == 8:
            frame.value = text_of(&field)
            frame.content = 8
        elif field.number == 9:
            expect(&field, 1)
            memcpy(&number, &field.value, 8)
            frame.value = number
            frame.content = 9
        elif field.number == 10:
            expect(&field, 0)
            frame.value = <int64_t>(field.value >> 1) ^ -<int64_t>(field.value & 1)
            frame.content = 10
        elif field.number == 11:
            frame.value = bool(uint_of(&field, 1))
            frame.content = 11
        elif field.number == 12:
            expect(&field, 0)
            frame.value = None
            frame.content = 12
        elif field.number == 13:
            frame.value = read_number(&field)
            frame.content = 13
        elif field.number == 14 or field.number == 15:
            expect(&field, 0)
            frame.size = field.value
            frame.content = field.number
        elif field.number == 16:
            frame.header = read_header(&field)
            frame.content = 16
        elif field.number == 17:
            frame.end = read_end(&field)
            frame.content = 17
        elif 18 <= field.number <= 22:
            frame.mesh = bytes_of(&field)
            frame.content = field.number
    return frame


cdef bint content_fits(int kind, uint32_t content) noexcept:
    if kind == KIND_HEADER:
        return content == 16
    if kind == KIND_VALUE:
        return 8 <= content <= 13
    if kind == KIND_PART:
        return content == 8
    if kind == KIND_CLOSE:
        return content == 14 or content == 15
    if kind == KIND_END:
        return content == 17
    if 16 <= kind <= 20:
        return content == <uint32_t>(kind + 2)
    return True


cdef class Decoder:
    """Rebuilds the documents of one request from its chunks."""

    cdef object limits
    cdef dict _documents
    cdef Document main
    cdef uint64_t received
    cdef uint64_t verified
    cdef bint broken

    def __cinit__(self, *, limits=None):
        self.limits = limits or Limits()
        self.main = Document(self.limits)
        self._documents = {0: self.main}

    def feed(self, chunk):
        """The frames of a chunk, or of several put together. Raises FrameError; the decoder is then of no
        further use."""
        cdef Py_buffer view
        if self.broken:
            raise FrameError("an earlier chunk was malformed")
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        try:
            # Frames keep the chunk for `raw`; bytes are kept as they are.
            data = chunk if type(chunk) is bytes else PyBytes_FromStringAndSize(<char*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        try:
            return self._feed(data)
        except FrameError:
            self.broken = True
            raise

    cdef list _feed(self, bytes chunk):
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(chunk)
        cdef const uint8_t* at = start
        cdef const uint8_t* end = start + PyBytes_GET_SIZE(chunk)
        cdef Field field
        cdef Frame frame
        frames = []
        while at < end:
            next_field(&at, end, &field)
            if field.number != 1:
                continue
            expect(&field, 2)
            frame = read_frame(field.data, field.data + field.size)
            frame.chunk = chunk
            frame.begin = field.data - start
            frame.size_bytes = <Py_ssize_t>field.size
            if frame.kind >= FIRST_MESH_KIND:
                if not content_fits(frame.kind, frame.content):
                    raise FrameError("a mesh frame holds the content of another kind")
                frames.append(frame)
            elif self._take(frame):
                frames.append(frame)
        return frames

    cdef bint _take(self, Frame frame) except -1:
        """Apply a document frame; False for one that was here before."""
        cdef Document document = self.main
        cdef tuple tokens
        self.received += 1
        if frame.document:
            document = self._documents.get(frame.document)
            if document is None:
                if len(self._documents) >= self.limits.max_properties:
                    raise FrameError("too many documents")
                document = self._documents[frame.document] = Document(self.limits)
        if not content_fits(frame.kind, frame.content):
            raise FrameError("a frame holds the content of another kind")
        if not document.follows(frame.number):
            return False
        if frame.kind == KIND_HEADER:
            document.header_arrived(frame.header)
        elif frame.kind == KIND_END:
            document.end_arrived(frame.end)
        elif KIND_VALUE <= frame.kind <= KIND_CLOSE:
            tokens = document.resolve(frame.node, frame.steps)
            if tokens is None:
                return True
            frame.tokens = tokens
            if frame.kind == KIND_PART:
                document.part_arrived(tokens, frame.value)
            elif frame.kind == KIND_VALUE:
                frame.completed = document.value_arrived(tokens, frame.value, frame.parts)
            else:
                frame.completed = document.close_arrived(tokens, frame.size, frame.content == 15)
            if frame.document:
                frame.completed = None
        self.verified += 1
        return True

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
        next_field(&at, end, &frame)
        if frame.number != 1:
            continue
        expect(&frame, 2)
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
