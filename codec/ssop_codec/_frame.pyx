# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Reads one frame and the messages inside it.

Fields that are not known are passed over, so that newer writers can be read. What a caller may never ask for (path,
header, end, message of the mesh) is made from the chunk when it is asked for; that it can be made is known before.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._fields cimport UINT32, Field, bytes_of, expect, next_field, text_of, uint_of
from ssop_codec._table cimport FieldTable, steps_of
from ssop_codec._wire cimport get_varint

from decimal import Decimal

from .errors import FrameError, Violation
from .frames import End, Header
from .rules import FieldNode


# Frames come by the hundred and leave together, and only lists hold them: neither the allocator nor the collector of
# cycles needs to see each of them.
@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Frame:
    """One frame, read-only."""

    @property
    def seq(self):
        """Position in the document, from 1; 0 on mesh frames."""
        return self.number

    @property
    def raw(self):
        """The bytes of the frame, without the tag and length in front of it."""
        return self.chunk[self.begin : self.begin + self.size_bytes]

    @property
    def size(self):
        """Members of the container that this frame closes, or None."""
        return self.count if self.content == OBJECT_SIZE or self.content == ARRAY_SIZE else None

    @property
    def delta(self):
        """The top-level properties that this frame completes, whole."""
        if not self.completes:
            return {}
        whole = self.whole if self.kind == KIND_CLOSE or self.parts else self.value
        return {tokens_of(self)[0]: whole}

    @property
    def is_part(self):
        """The value goes on in the next frames."""
        return self.kind == KIND_PART

    @property
    def tokens(self):
        """Keys and indexes from the root to the value."""
        return tokens_of(self)

    @property
    def path(self):
        """JSON Pointer of the value."""
        return "".join(["/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens_of(self)])

    @property
    def header(self):
        """What a HEADER frame says, or None."""
        return _make_header(self) if self.content == HEADER else None

    @property
    def end(self):
        """What an END frame says, or None."""
        return _make_end(self) if self.content == END else None

    @property
    def mesh(self):
        """The message of a mesh frame, serialized, or None."""
        if not 18 <= self.content <= 22:
            return None
        return PyBytes_FromStringAndSize(<const char*>message_of(self), self.message_size)

    def __repr__(self):
        return f"Frame(seq={self.seq}, kind={self.kind}, path={self.path!r}, value={self.value!r})"


cdef list path_of(Frame frame):
    """The steps of the path: int, str or RefStep; None where there are none."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(frame.chunk) + frame.begin
    return steps_of(start + frame.path_begin, start + frame.path_end) if frame.path_end else None


cdef tuple tokens_of(Frame frame):
    """Keys and indexes from the root to the value."""
    return () if frame.table is None else frame.table.resolve(frame.node, path_of(frame))


cdef const uint8_t* message_of(Frame frame) noexcept:
    """The header, end or message of the mesh, `message_size` bytes."""
    return <const uint8_t*>PyBytes_AS_STRING(frame.chunk) + frame.begin + frame.count


# -- header ------------------------------------------------------------------------------------------------------


cdef object read_node(Field* field, NodeFields* node):
    """Fill in the numbers of a node; returns its key."""
    cdef const uint8_t* at = field.data
    cdef const uint8_t* end
    cdef Field inner
    expect(field, 2)
    end = at + field.size
    node.node = node.parent = node.step = node.index = node.types = 0
    node.ref = -1
    node.required = False
    key = ""
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            node.node = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 2:
            node.parent = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 3:
            node.step = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 4:
            key = text_of(&inner)
        elif inner.number == 5:
            node.index = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 6:
            node.types = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 7:
            node.ref = <int64_t>uint_of(&inner, UINT32)
        elif inner.number == 8:
            node.required = uint_of(&inner, 1)
    return key


cdef int read_header(const uint8_t* at, const uint8_t* end, HeaderFields* fields) except -1:
    """Read the numbers of a header and check all but its nodes."""
    cdef Field inner
    fields.wire_version = fields.node_count = fields.buffer_bytes = 0
    fields.is_text = fields.has_hash = False
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            fields.wire_version = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 3:
            expect(&inner, 2)
            fields.has_hash = inner.size > 0
        elif inner.number == 4:
            fields.node_count = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 5:
            fields.buffer_bytes = <uint32_t>uint_of(&inner, UINT32)
        elif inner.number == 8:
            fields.is_text = uint_of(&inner, 1)
        elif inner.number in (2, 7, 9, 10):
            text_of(&inner)
    return 0


cdef object _make_header(Frame frame):
    cdef const uint8_t* at = message_of(frame)
    cdef const uint8_t* end = at + frame.message_size
    cdef HeaderFields fields
    cdef NodeFields node
    cdef Field inner
    read_header(at, end, &fields)
    codec_version = tool_name = tool_call_id = ""
    schema_hash = b""
    nodes = []
    annotations = []
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 2:
            codec_version = text_of(&inner)
        elif inner.number == 3:
            schema_hash = bytes_of(&inner)
        elif inner.number == 6:
            key = read_node(&inner, &node)
            nodes.append(FieldNode(
                node.node, node.parent, node.step, key, node.index, node.types,
                None if node.ref < 0 else node.ref, bool(node.required),
            ))
        elif inner.number == 7:
            annotations.append(text_of(&inner))
        elif inner.number == 9:
            tool_name = text_of(&inner)
        elif inner.number == 10:
            tool_call_id = text_of(&inner)
    return Header(
        fields.wire_version, codec_version, schema_hash, fields.node_count, fields.buffer_bytes, tuple(nodes),
        tuple(annotations), bool(fields.is_text), tool_name, tool_call_id,
    )


cdef int check_header(Frame frame) except -1:
    _make_header(frame)
    return 0


# -- end ---------------------------------------------------------------------------------------------------------


cdef object _read_violation(Field* field):
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


cdef int read_end(const uint8_t* at, const uint8_t* end, EndFields* fields) except -1:
    """Read an end; all of it is checked."""
    cdef const uint8_t* usage
    cdef const uint8_t* usage_end
    cdef Field inner
    cdef Field count
    fields.verdict = fields.incomplete = fields.finish = fields.frames = 0
    fields.usage[0] = fields.usage[1] = fields.usage[2] = 0
    fields.has_violation = False
    while at < end:
        next_field(&at, end, &inner)
        if inner.number == 1:
            fields.verdict = uint_of(&inner, UINT32)
        elif inner.number == 2:
            _read_violation(&inner)
            fields.violation = inner
            fields.has_violation = True
        elif inner.number == 3:
            fields.incomplete = uint_of(&inner, UINT32)
        elif inner.number == 4:
            fields.finish = uint_of(&inner, UINT32)
        elif inner.number == 5:
            expect(&inner, 0)
            fields.frames = inner.value
        elif inner.number == 6:
            expect(&inner, 2)
            usage = inner.data
            usage_end = usage + inner.size
            while usage < usage_end:
                next_field(&usage, usage_end, &count)
                if 1 <= count.number <= 3:
                    fields.usage[count.number - 1] = uint_of(&count, UINT32)
    return 0


cdef object _make_end(Frame frame):
    cdef const uint8_t* at = message_of(frame)
    cdef EndFields fields
    read_end(at, at + frame.message_size, &fields)
    violation = _read_violation(&fields.violation) if fields.has_violation else None
    return End(
        fields.verdict, violation, fields.incomplete, fields.finish, fields.frames,
        fields.usage[0], fields.usage[1], fields.usage[2],
    )


# -- frames ------------------------------------------------------------------------------------------------------


cdef object _read_number(Field* field):
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


cdef Frame read_frame(bytes chunk, const uint8_t* at, const uint8_t* end):
    """Read a frame of a chunk. Whether a header is well-formed is left to who takes it."""
    cdef Frame frame = Frame.__new__(Frame)
    cdef const uint8_t* start = at
    cdef const uint8_t* before
    cdef Field field
    cdef uint64_t number
    cdef double fraction
    cdef uint8_t tag
    if end - at > UINT32:
        raise FrameError("a frame is too large")
    frame.chunk = chunk
    frame.begin = at - <const uint8_t*>PyBytes_AS_STRING(chunk)
    frame.size_bytes = <uint32_t>(end - at)
    while at < end:
        # The fields of values as every writer makes them; whatever differs is read below.
        tag = at[0]
        before = at
        at += 1
        if tag == 0x22:
            if at < end and at[0] < 0x80 and at[0] < end - at:
                at += 1 + at[0]
                if frame.path_end == 0:
                    frame.path_begin = <uint32_t>(before - start)
                frame.path_end = <uint32_t>(at - start)
                continue
        elif frame.content == HEADER:
            pass
        elif tag == 0x49:
            if end - at >= 8:
                memcpy(&fraction, at, 8)
                at += 8
                frame.value = fraction
                frame.content = 9
                continue
        elif tag == 0x42:
            if not get_varint(&at, end, &number) and number <= <uint64_t>(end - at):
                try:
                    frame.value = PyUnicode_DecodeUTF8(<char*>at, <Py_ssize_t>number, NULL)
                except UnicodeDecodeError:
                    raise FrameError("a text is not UTF-8") from None
                at += number
                frame.content = 8
                continue
        elif tag < 0x80 and tag & 7 == 0 and not get_varint(&at, end, &number):
            if tag == 0x08:
                frame.number = number
                continue
            if tag == 0x10 and number <= 0x7FFFFFFF:
                frame.kind = <int>number
                continue
            if tag == 0x18 and number <= UINT32:
                frame.node = <uint32_t>number
                continue
            if tag == 0x50:
                frame.value = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
                frame.content = 10
                continue
            if tag == 0x58 and number <= 1:
                frame.value = True if number else False
                frame.content = 11
                continue
            if tag == 0x60:
                frame.value = None
                frame.content = 12
                continue
            if tag == 0x70 or tag == 0x78:
                frame.count = number
                frame.content = tag >> 3
                continue
        at = before
        next_field(&at, end, &field)
        _take_field(frame, &field, before, at, start)
    return frame


cdef int _take_field(
    Frame frame, Field* field, const uint8_t* before, const uint8_t* behind, const uint8_t* start
) except -1:
    """Any field, in whatever form it is."""
    cdef double fraction
    cdef EndFields end
    if frame.content == HEADER and 8 <= field.number <= 22:
        # One that will not be taken, so it is checked here.
        check_header(frame)
    if field.number == 1:
        expect(field, 0)
        frame.number = field.value
    elif field.number == 2:
        frame.kind = <int>uint_of(field, 0x7FFFFFFF)
    elif field.number == 3:
        frame.node = <uint32_t>uint_of(field, UINT32)
    elif field.number == 4:
        expect(field, 2)
        if frame.path_end == 0:
            frame.path_begin = <uint32_t>(before - start)
        frame.path_end = <uint32_t>(behind - start)
    elif field.number == 5:
        frame.parts = <uint32_t>uint_of(field, UINT32)
    elif field.number == 6:
        frame.document = <uint32_t>uint_of(field, UINT32)
    elif field.number == 8:
        frame.value = text_of(field)
        frame.content = 8
    elif field.number == 9:
        expect(field, 1)
        memcpy(&fraction, &field.value, 8)
        frame.value = fraction
        frame.content = 9
    elif field.number == 10:
        expect(field, 0)
        frame.value = <int64_t>(field.value >> 1) ^ -<int64_t>(field.value & 1)
        frame.content = 10
    elif field.number == 11:
        frame.value = bool(uint_of(field, 1))
        frame.content = 11
    elif field.number == 12:
        expect(field, 0)
        frame.value = None
        frame.content = 12
    elif field.number == 13:
        frame.value = _read_number(field)
        frame.content = 13
    elif field.number == 14 or field.number == 15:
        expect(field, 0)
        frame.count = field.value
        frame.content = field.number
    elif 16 <= field.number <= 22:
        expect(field, 2)
        frame.count = field.data - start
        frame.message_size = <uint32_t>field.size
        frame.content = field.number
        if field.number == END:
            read_end(field.data, field.data + field.size, &end)
    return 0
