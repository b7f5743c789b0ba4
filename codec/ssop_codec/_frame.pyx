# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reads one frame and the messages inside it.

Fields that are not known are passed over, so that newer writers can be read.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ssop_codec._fields cimport UINT32, Field, bytes_of, expect, next_field, text_of, uint_of

from decimal import Decimal

from .errors import FrameError, Violation
from .frames import End, Header
from .rules import FieldNode
from .wire import RefStep


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


cdef object _read_step(Field* field):
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


cdef object _read_node(Field* field):
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


cdef object _read_header(Field* field):
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
            nodes.append(_read_node(&inner))
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


cdef object _read_end(Field* field):
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
            violation = _read_violation(&inner)
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
            frame.steps.append(_read_step(&field))
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
            frame.value = _read_number(&field)
            frame.content = 13
        elif field.number == 14 or field.number == 15:
            expect(&field, 0)
            frame.size = field.value
            frame.content = field.number
        elif field.number == 16:
            frame.header = _read_header(&field)
            frame.content = 16
        elif field.number == 17:
            frame.end = _read_end(&field)
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
