"""The encoder written for the reader, not for the machine: the oracle that `_encoder` is tested against.

It follows the grammar of JSON with one generator per rule, takes one byte at a time and judges by the plain
reading of the schema. Same interface, same bytes. Product code never imports it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import IntEnum, auto

from . import describe, wire
from ._judge_py import Finding, SlowJudge
from ._pattern_py import slow_pattern
from .checks import broken_number_rule, keeps_format, sign_breaks
from .constants import DONE, INVALID, MIN_BUFFER_BYTES, READY, FieldType, FrameKind, Verdict
from .errors import CodecError, Violation
from .limits import Limits
from .number import parse_number, to_int64
from .references import escape
from .rules import FORBIDDEN, UNBOUNDED, UNTYPED, Rule, Schema
from .schema import raw_schema
from .wire import PathStep, RefStep


class D(IntEnum):
    """Positions in `describe.DETAILS`."""

    NONE = 0
    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    AFTER_MEMBER = auto()
    AFTER_ITEM = auto()
    DIGIT = auto()
    LITERAL = auto()
    ESCAPE = auto()
    HEX = auto()
    LOW_HALF = auto()
    CONTROL = auto()
    LONE_HALF = auto()
    DEPTH = auto()
    DOCUMENT = auto()
    BLANKS = auto()
    KEY_SIZE = auto()
    NUMBER_SIZE = auto()
    FORMAT_SIZE = auto()
    OBJECT_KEYS = auto()
    BUFFER = auto()
    NUMBER_END = auto()
    CHECKS = auto()
    HELD = auto()
    UNIQUE = auto()
    PATTERN = auto()


class BrokenError(Exception):
    """The first violation, on its way out of the generators."""

    def __init__(self, rule: str, offset: int, place: Place, detail: int = D.NONE, *missing: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.offset = offset
        self.place = place
        self.detail = detail
        self.missing = missing


@dataclass(frozen=True)
class Place:
    """Where a value stands: its rule, its node, the steps of its path, its pointer."""

    rule: Rule
    node: int
    path: tuple[PathStep, ...] = ()
    pointer: str = ""
    pointer_ends: bool = False
    """A key of the model was passed: the pointer grows no more."""
    structure: Rule = field(default_factory=Rule)
    """Rule of the structure of the container around it, or of its own when it is judged as one."""
    is_forbidden: bool = False


Reading = Generator[None, int, None]
_Points = tuple[tuple[int, int], ...]
_ESCAPES = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
_BLANK = frozenset(b" \t\r\n")
_DIGITS = frozenset(b"0123456789")


class Utf8:
    """Judges UTF-8 byte by byte (the table of RFC 3629)."""

    def __init__(self) -> None:
        self.need = 0
        self.low, self.high = 0x80, 0xBF

    def accepts(self, byte: int) -> bool:
        """Whether the byte may come now."""
        if self.need:
            fits = self.low <= byte <= self.high
            self.need -= 1
            self.low, self.high = 0x80, 0xBF
            return fits
        if byte < 0x80:
            return True
        self.need = 1 if 0xC2 <= byte <= 0xDF else 2 if 0xE0 <= byte <= 0xEF else 3
        self.low = {0xE0: 0xA0, 0xF0: 0x90}.get(byte, 0x80)
        self.high = {0xED: 0x9F, 0xF4: 0x8F}.get(byte, 0xBF)
        return 0xC2 <= byte <= 0xF4


def _cut(text: bytes, limit: int) -> int:
    """The last end of a code point at `limit` or before; `text` is longer than `limit`."""
    while text[limit] & 0xC0 == 0x80:
        limit -= 1
    return limit


class Encoder:
    """Makes the frames of one document from the bytes that a model generates."""

    def __init__(
        self,
        schema: Schema | None,
        *,
        stream_buffer_bytes: int = 0,
        limits: Limits | None = None,
        envelope: bool = False,
        document: int = 0,
        first_seq: int = 1,
        track_spans: bool = False,
        tool_name: str = "",
        tool_call_id: str = "",
    ) -> None:
        self.schema = schema or raw_schema()
        self.limits = limits or Limits()
        self.buffer_bytes = stream_buffer_bytes or self.schema.auto_buffer_bytes
        if self.buffer_bytes < MIN_BUFFER_BYTES:
            raise ValueError("stream_buffer_bytes")
        self.document = document
        self.first_seq = self.seq = first_seq
        self.is_envelope = envelope
        self.track_spans = track_spans
        self.pending = b""
        self.sealed: list[bytes] = []
        self.spans: list[tuple[int, int, int]] = []
        self.has_field = False
        self.is_done = False
        self.is_finished = False
        self.violation: Violation | None = None
        self.verdict = 0
        self.offset = 0
        self.held: int | None = None
        self.preamble = bytearray()
        self.number: bytearray | None = None
        self.number_place = Place(self.schema.rules[0], 0)
        self.innermost: list[Place] = []
        self.judge = SlowJudge(self.schema)
        self.read = bytearray()
        self.text = bytearray()
        self.text_parts = 0
        self.utf8 = Utf8()
        self.root = Place(self.schema.rules[0], 0)
        if not (document == 0 and first_seq > 1):
            for frame in wire.header_frames(
                self.schema,
                self.buffer_bytes,
                document=document,
                first_seq=first_seq,
                tool_name=tool_name,
                tool_call_id=tool_call_id,
            ):
                self._push(frame)
        self.reading = self._text() if self.schema.is_text else self._all()
        next(self.reading)

    # -- the interface of the fast encoder ----------------------------------------------------------------

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """Read the next bytes of model output; returns flags READY, DONE, INVALID."""
        if self.is_finished:
            raise CodecError("feed after finish")
        for byte in bytes(data):
            if self.violation is not None:
                break
            try:
                self._take_byte(byte)
            except BrokenError as broken:
                self._break(broken)
        flags = READY if self.sealed else 0
        if self.violation is not None:
            return flags | INVALID
        return flags | (DONE if self.is_done else 0)

    def _take_byte(self, byte: int) -> None:
        if self.offset == self.limits.max_document_bytes and not (self.is_done and self.is_envelope):
            around = self.innermost[-1] if self.innermost else self.root
            raise BrokenError("limit", self.offset, around, D.DOCUMENT)
        self.offset += 1
        self.read.append(byte)
        self.reading.send(byte)

    def _obey(self, found: Finding | None, offset: int) -> None:
        """Raise what the judge found."""
        if found is not None:
            rule = found.check.rule
            place = Place(rule, 0, (), found.value.pointer, structure=rule)
            raise BrokenError(found.rule, offset, place, D.NONE, *rule.required)

    def take(self) -> bytes:
        """The next sealed chunk, or an empty one."""
        return self.sealed.pop(0) if self.sealed else b""

    def flush(self) -> bytes:
        """Seal what is pending and return the oldest chunk."""
        if self.schema.is_text and not self.is_finished and self.violation is None:
            self._flush_text()
        self._seal()
        return self.take()

    def drain(self, flush: bool = False) -> list[bytes]:
        """All sealed chunks, and with `flush` the pending one."""
        chunks = [self.flush()] if flush else []
        chunks += self.sealed
        self.sealed = []
        return [chunk for chunk in chunks if chunk]

    def take_spans(self) -> list[tuple[int, int, int]]:
        """Spans of the values completed since the last call."""
        spans, self.spans = self.spans, []
        return spans

    @property
    def frames(self) -> int:
        """Document frames made so far."""
        return self.seq - self.first_seq

    def finish(
        self,
        *,
        finish_reason: int = 0,
        incomplete_reason: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
    ) -> None:
        """Decide the verdict and append the END frame."""
        if self.is_finished:
            return
        try:
            if self.schema.is_text and self.violation is None:
                self._finish_text(incomplete_reason)
            elif self._ends_with_number() and not incomplete_reason:
                self._end_number(self.number_place, bytes(self.number or b""), self.offset)
                self.is_done = True
        except BrokenError as broken:
            self._break(broken)
        self.is_finished = True
        if self.violation is not None:
            self.verdict = Verdict.INVALID
        else:
            self.verdict = Verdict.OK if self.is_done else Verdict.INCOMPLETE
        self._push(
            wire.end_frame(
                self.seq,
                self.buffer_bytes,
                self.verdict,
                document=self.document,
                violation=self.violation,
                incomplete_reason=wire.incomplete_reason_or_default(incomplete_reason),
                finish_reason=finish_reason,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_input_tokens=cached_input_tokens,
            )
        )

    def _ends_with_number(self) -> bool:
        """The output so far is a whole number at the root."""
        is_open = self.number is not None and self.violation is None and not self.innermost
        return is_open and self.number is not None and self.number[-1] in _DIGITS

    # -- frames -------------------------------------------------------------------------------------------

    def _break(self, broken: BrokenError) -> None:
        place = broken.place
        if broken.detail:
            text = describe.DETAILS[broken.detail]
        else:
            text = describe.expected(broken.rule, place.rule, place.structure, broken.missing)
        self.is_done = False
        self.violation = Violation(broken.rule, place.pointer, broken.offset, text)

    def _seal(self) -> None:
        if self.pending:
            self.sealed.append(self.pending)
            self.pending = b""

    def _push(self, frame: bytes) -> None:
        if len(self.pending) + len(frame) > self.buffer_bytes:
            self._seal()
        self.pending += frame
        if len(frame) > self.buffer_bytes:
            self._seal()
        self.seq += 1

    def _send(self, kind: int, place: Place, content: bytes, offset: int, parts: int = 0) -> None:
        head = wire.head(self.seq, kind, place.node, wire.path_steps(place.path), parts, self.document)
        frame = wire.chunk_of(head + content)
        if len(frame) > self.buffer_bytes:
            raise BrokenError("limit", offset, place, D.BUFFER)
        self._push(frame)
        if not self.has_field:
            self.has_field = True
            self._seal()

    def _room(self, place: Place, parts: int) -> int:
        length = len(wire.varint(self.buffer_bytes))
        path = wire.path_steps(place.path)
        head = wire.head(self.seq, FrameKind.VALUE, place.node, path, parts + 1, self.document)
        return self.buffer_bytes - 1 - length - len(head) - 1 - length

    # -- the document -------------------------------------------------------------------------------------

    def _next(self) -> Generator[None, int, int]:
        if self.held is not None:
            byte, self.held = self.held, None
            return byte
        return (yield)

    @property
    def _at(self) -> int:
        """Offset of the byte that was read last."""
        return self.offset - 1

    def _all(self) -> Reading:
        if self.is_envelope:
            yield from self._before()
        else:
            for position, byte in enumerate(b"\xef\xbb\xbf"):
                read = yield from self._next()
                if read != byte:
                    if position:
                        raise BrokenError("syntax", self._at, self.root, D.VALUE)
                    self.held = read
                    break
        yield from self._value((yield from self._token(self.root)), self.root)
        self.is_done = True
        while True:
            byte = yield from self._next()
            if byte not in _BLANK and not self.is_envelope:
                raise BrokenError("trailing", self._at, self.root)

    def _before(self) -> Reading:
        while True:
            byte = yield from self._next()
            self.preamble.append(byte)
            if self._begins_document():
                self.held = byte
                return

    def _begins_document(self) -> bool:  # noqa: C901, PLR0911, PLR0912  # SPEC.md section 9, rule by rule
        """Whether the last byte of the preamble is the first of the document."""
        types = self.root.rule.types
        text = bytes(self.preamble)
        at = 0
        is_after_prose = False
        ticks = 0
        while at < len(text):
            byte = text[at]
            rest = text[at:]
            if (byte == 0x7B and types & FieldType.OBJECT) or (byte == 0x5B and types & FieldType.ARRAY):
                return True
            if rest.startswith(b"<think>"):
                end = text.find(b"</think>", at + 7)
                if end < 0:
                    return False
                at = end + 8
                is_after_prose = False
                continue
            if byte == 0x3C:
                # A tag that breaks off is no prose until the byte that breaks it.
                at += next(n for n in range(1, 8) if rest[: n + 1] != b"<think>"[: n + 1])
                ticks = 0
                continue
            ticks = ticks + 1 if byte == 0x60 else 0
            at += 1
            if ticks == 3:
                ticks = 0
                while at < len(text) and text[at] != 0x0A:
                    if text[at] == 0x7B and types & FieldType.OBJECT:
                        return True
                    if text[at] == 0x5B and types & FieldType.ARRAY:
                        return True
                    at += 1
                if at == len(text):
                    return False
                at += 1
                is_after_prose = False
                continue
            if byte in _BLANK or byte >= 0x80 or byte == 0x60 or is_after_prose:
                continue
            if byte == 0x22 and types & FieldType.STRING:
                return True
            if (byte in _DIGITS or byte == 0x2D) and types & FieldType.INTEGER:
                return True
            if not types & (FieldType.OBJECT | FieldType.ARRAY):
                return True
            is_after_prose = True
        return False

    def _token(self, place: Place) -> Generator[None, int, int]:
        """The next byte that is no blank; `place` is named where there are too many."""
        blanks = 0
        while True:
            byte = yield from self._next()
            if byte not in _BLANK:
                return byte
            blanks += 1
            if blanks > self.limits.max_whitespace_run_bytes:
                raise BrokenError("limit", self._at, place, D.BLANKS)

    def _value(  # noqa: C901, PLR0912  # one branch per first byte
        self, byte: int, place: Place, detail: int = D.VALUE
    ) -> Reading:
        rule = place.rule
        start = self._at
        if byte == 0x22:
            wanted = int(FieldType.STRING)
        elif byte == 0x7B:
            wanted = int(FieldType.OBJECT)
        elif byte == 0x5B:
            wanted = int(FieldType.ARRAY)
        elif byte in _DIGITS or byte == 0x2D:
            wanted = FieldType.INTEGER | FieldType.NUMBER
        elif byte in b"tf":
            wanted = int(FieldType.BOOLEAN)
        elif byte == 0x6E:
            wanted = int(FieldType.NULL)
        else:
            raise BrokenError("syntax", start, place, detail)
        if place.is_forbidden:
            raise BrokenError("items", start, self.innermost[-1])
        if not rule.types & wanted:
            raise BrokenError(rule.enum_keyword if rule.declared_types & wanted else "type", start, place)
        self._obey(self.judge.begin(rule, int(wanted), byte, place.pointer, start), start)
        if byte == 0x22:
            yield from self._string(place)
        elif byte in {0x7B, 0x5B}:
            yield from self._container(place, is_array=byte == 0x5B)
            return
        elif byte in b"tfn":
            yield from self._literal(byte, place)
        else:
            yield from self._number(byte, place)
            # The byte after a number was read, too.
            self._span(start, self._at)
            return
        self._span(start, self.offset)

    def _span(self, start: int, end: int) -> None:
        if self.track_spans:
            self.spans.append((self.seq - 1, start, end))

    def _container(self, place: Place, *, is_array: bool) -> Reading:
        if len(self.innermost) == self.limits.max_depth:
            raise BrokenError("limit", self._at, place, D.DEPTH)
        rule = place.rule
        path = place.path
        node = place.node
        at = rule.array_at if is_array else rule.object_at
        if not self._is_untyped(place) and self.schema.rules[at] is not rule:
            rule = self.schema.rules[at]
            path = (*path, RefStep(node))
            node = at
            if len(wire.path_steps(path)) > self.buffer_bytes:
                raise BrokenError("limit", self._at, place, D.BUFFER)
        inner = Place(rule, node, path, place.pointer, place.pointer_ends, rule)
        # What is wrong with the container itself is told with its own structure.
        self.innermost.append(inner)
        if is_array:
            size = yield from self._items(inner)
        else:
            size = yield from self._members(inner)
        start = self.judge.open[-1].start
        self._obey(self.judge.end(bytes(self.read[start : self.offset])), self._at)
        closing = Place(place.rule, place.node, place.path, place.pointer, place.pointer_ends, rule)
        self._send(FrameKind.CLOSE, closing, wire.size_content(size, is_array=is_array), self._at)
        self.innermost.pop()

    def _is_untyped(self, place: Place) -> bool:
        return place.rule is _ANY

    def _child(self, around: Place, rule: int, step: PathStep | None, token: str | None) -> Place:
        """The place below `around`; `token` None: a key of the model."""
        path = around.path if step is None else (*around.path, step)
        pointer_ends = around.pointer_ends or token is None
        pointer = around.pointer if pointer_ends else f"{around.pointer}/{escape(token or '')}"
        if rule == UNTYPED:
            return Place(_ANY, around.node, path, pointer, pointer_ends, around.rule)
        return Place(self.schema.rules[rule], rule, path, pointer, pointer_ends, around.rule)

    def _item(self, around: Place, index: int) -> Place:
        rule = around.rule
        if index < len(rule.prefix):
            return self._child(around, rule.prefix[index], None, str(index))
        if rule.items == FORBIDDEN:
            return Place(Rule(), 0, around.path, around.pointer, around.pointer_ends, rule, is_forbidden=True)
        place = self._child(around, rule.items, index, str(index))
        if len(wire.path_steps(place.path)) > self.buffer_bytes:
            raise BrokenError("limit", self._at, place, D.BUFFER)
        return place

    def _items(self, around: Place) -> Generator[None, int, int]:
        rule = around.rule
        item = self._item(around, 0)
        index_place = self._child(around, UNTYPED, None, "0")
        byte = yield from self._token(index_place)
        size = 0
        if byte != 0x5D:
            if rule.max_items == 0:
                raise BrokenError("maxItems", self._at, around)
            yield from self._value(byte, self._named(item, index_place), D.VALUE_OR_END)
            size = 1
            while (byte := (yield from self._token(around))) != 0x5D:
                if byte != 0x2C:
                    raise BrokenError("syntax", self._at, around, D.AFTER_ITEM)
                if size == rule.max_items:
                    raise BrokenError("maxItems", self._at, around)
                item = self._item(around, size)
                index_place = self._child(around, UNTYPED, None, str(size))
                byte = yield from self._token(index_place)
                yield from self._value(byte, self._named(item, index_place))
                size += 1
        if size < rule.min_items:
            raise BrokenError("minItems", self._at, around)
        return size

    @staticmethod
    def _named(item: Place, index_place: Place) -> Place:
        """A forbidden item has a pointer of its own when its first byte is no value at all."""
        if not item.is_forbidden:
            return item
        return Place(
            item.rule,
            item.node,
            item.path,
            index_place.pointer,
            index_place.pointer_ends,
            item.structure,
            is_forbidden=True,
        )

    def _members(self, around: Place) -> Generator[None, int, int]:  # the grammar, in order
        rule = around.rule
        seen: set[bytes] = set()
        size = 0
        byte = yield from self._token(around)
        if byte != 0x7D:
            detail = D.KEY_OR_END
            while True:
                if byte != 0x22:
                    raise BrokenError("syntax", self._at, around, detail)
                self._check_room(rule, size, around)
                key = yield from self._key(around)
                place = self._member(around, key, seen)
                if (yield from self._token(around)) != 0x3A:
                    raise BrokenError("syntax", self._at, place, D.COLON)
                yield from self._value((yield from self._token(place)), place)
                size += 1
                byte = yield from self._token(around)
                if byte == 0x7D:
                    break
                if byte != 0x2C:
                    raise BrokenError("syntax", self._at, around, D.AFTER_MEMBER)
                self._check_room(rule, size, around)
                detail = D.KEY
                byte = yield from self._token(around)
        missing = [n for n in rule.properties if n in rule.required and n.encode() not in seen]
        if missing:
            raise BrokenError("required", self._at, around, D.NONE, *missing)
        if size < rule.min_properties:
            raise BrokenError("minProperties", self._at, around)
        return size

    def _check_room(self, rule: Rule, size: int, around: Place) -> None:
        """Whether one more key can stand in the object."""
        if size == rule.max_properties:
            raise BrokenError("maxProperties", self._at, around)
        if rule.additional == FORBIDDEN and size == len(rule.properties):
            raise BrokenError("additionalProperties", self._at, around)

    def _member(self, around: Place, key: bytes, seen: set[bytes]) -> Place:
        rule = around.rule
        name = key.decode()
        if name in rule.properties:
            if key in seen:
                raise BrokenError("duplicateKey", self._at, around)
            seen.add(key)
            self._obey(self.judge.end_key(), self._at)
            return self._child(around, rule.properties[name], None, name)
        if rule.additional == FORBIDDEN:
            raise BrokenError("additionalProperties", self._at, around)
        if not self.schema.is_raw:
            if key in seen:
                raise BrokenError("duplicateKey", self._at, around)
            unnamed = sum(other.decode() not in rule.properties for other in seen)
            if unnamed >= self.limits.max_object_keys:
                raise BrokenError("limit", self._at, around, D.OBJECT_KEYS)
            seen.add(key)
        place = self._child(around, rule.additional, name, None)
        if len(wire.path_steps(place.path)) > self.buffer_bytes:
            raise BrokenError("limit", self._at, around, D.BUFFER)
        self._obey(self.judge.end_key(), self._at)
        return place

    # -- strings ------------------------------------------------------------------------------------------

    def _characters(  # noqa: C901, PLR0912, PLR0915  # the grammar of strings, in order
        self, place: Place, take: _Sink
    ) -> Reading:
        """The bytes of a string up to its closing quote, unescaped, into `take`."""
        utf8 = Utf8()
        high = 0
        raw = b""
        while True:
            byte = yield from self._next()
            at = self._at
            if utf8.need:
                if not utf8.accepts(byte):
                    raise BrokenError("utf8", at, place)
                raw += bytes((byte,))
                take.becomes(_utf8_points(utf8, raw), at)
                take.more(bytes((byte,)), at)
            elif byte == 0x5C:
                if not high:
                    take.starts(at)
                    take.becomes(((0, 0xD7FF), (0xE000, 0x10FFFF)), at)
                byte = yield from self._next()
                at = self._at
                if byte == 0x75:
                    unit = 0
                    for left in (12, 8, 4, 0):
                        byte = yield from self._next()
                        at = self._at
                        digit = chr(byte)
                        if digit not in "0123456789abcdefABCDEF":
                            raise BrokenError("syntax", at, place, D.HEX)
                        unit = unit * 16 + int(digit, 16)
                        if left or (0xD800 <= unit <= 0xDBFF and not high):
                            take.becomes(_unit_points(unit << left, ((unit + 1) << left) - 1, high), at)
                    if high:
                        if not 0xDC00 <= unit <= 0xDFFF:
                            raise BrokenError("syntax", at, place, D.LOW_HALF)
                        unit = 0x10000 + (high - 0xD800) * 0x400 + unit - 0xDC00
                        high = 0
                    elif 0xD800 <= unit <= 0xDBFF:
                        high = unit
                        continue
                    elif 0xDC00 <= unit <= 0xDFFF:
                        raise BrokenError("syntax", at, place, D.LONE_HALF)
                    take.counts()
                    take.becomes(((unit, unit),), at)
                    take.more(chr(unit).encode(), at)
                else:
                    if high:
                        raise BrokenError("syntax", at, place, D.LOW_HALF)
                    if byte not in _ESCAPES:
                        raise BrokenError("syntax", at, place, D.ESCAPE)
                    take.counts()
                    take.becomes(((_ESCAPES[byte], _ESCAPES[byte]),), at)
                    take.more(bytes((_ESCAPES[byte],)), at)
            elif byte < 0x20:
                raise BrokenError("syntax", at, place, D.CONTROL)
            elif high:
                raise BrokenError("syntax", at, place, D.LOW_HALF)
            elif byte == 0x22:
                return
            else:
                if not utf8.accepts(byte):
                    raise BrokenError("utf8", at, place)
                take.starts(at)
                take.counts()
                raw = bytes((byte,))
                take.becomes(_utf8_points(utf8, raw), at)
                take.more(raw, at)

    def _key(self, around: Place) -> Generator[None, int, bytes]:
        self._obey(self.judge.begin_key(), self._at)
        sink = _KeySink(self, around)
        yield from self._characters(around, sink)
        return bytes(sink.text)

    def _string(self, place: Place) -> Reading:
        sink = _StringSink(self, place)
        yield from self._characters(place, sink)
        sink.end()

    # -- numbers and literals -----------------------------------------------------------------------------

    def _number(self, byte: int, place: Place) -> Reading:
        text = self.number = bytearray((byte,))
        self.number_place = place
        self._judge_sign(text, place)
        while True:
            byte = yield from self._next()
            if not _is_number_prefix(bytes(text) + bytes((byte,))):
                break
            if len(text) == self.limits.max_number_bytes:
                raise BrokenError("limit", self._at, place, D.NUMBER_SIZE)
            text.append(byte)
            self._judge_sign(text, place)
        if text[-1] not in _DIGITS:
            raise BrokenError("syntax", self._at, place, D.DIGIT)
        if byte not in b" \t\r\n,]}":
            raise BrokenError("syntax", self._at, place, D.NUMBER_END)
        self._end_number(place, bytes(text), self._at)
        self.held = byte

    def _judge_sign(self, text: bytearray, place: Place) -> None:
        """Whether no number that begins so lies within the bounds: an exponent can move digits, not the sign."""
        digits = bytes(text).lower().partition(b"e")[0]
        keyword = sign_breaks(place.rule, text[0] == 0x2D, not set(digits) & set(b"123456789"))
        if keyword:
            raise BrokenError(keyword, self._at, place)

    def _end_number(self, place: Place, text: bytes, offset: int) -> None:
        self.number = None
        rule = place.rule
        keyword = broken_number_rule(rule, text)
        if keyword:
            raise BrokenError(keyword, offset, place)
        self._obey(self.judge.end(text, text), offset)
        self._send(FrameKind.VALUE, place, _number_content(rule, text), offset)
        if not self.innermost and self.track_spans and offset == self.offset:
            self._span(self.offset - len(text), self.offset)

    def _literal(self, byte: int, place: Place) -> Reading:
        word, value = {0x74: (b"true", True), 0x66: (b"false", False), 0x6E: (b"null", None)}[byte]
        if value is not None and value not in place.rule.bools:
            raise BrokenError(place.rule.enum_keyword, self._at, place)
        for expected in word[1:]:
            if (yield from self._next()) != expected:
                raise BrokenError("syntax", self._at, place, D.LITERAL)
        self._obey(self.judge.end(word), self._at)
        self._send(FrameKind.VALUE, place, wire.value_content(value), self._at)

    # -- plain text ---------------------------------------------------------------------------------------

    def _text(self) -> Reading:
        while True:
            byte = yield
            if not self.utf8.accepts(byte):
                raise BrokenError("utf8", self._at, self.root)
            self.text.append(byte)
            room = self._room(self.root, self.text_parts)
            if len(self.text) > room:
                self._part(_cut(bytes(self.text), room))

    def _part(self, size: int) -> None:
        piece = bytes(self.text[:size])
        self._send(FrameKind.PART, self.root, wire.string_content(piece), self._at)
        del self.text[:size]
        self.text_parts += 1

    def _flush_text(self) -> None:
        size = len(self.text)
        if size and self.utf8.need:
            size = _cut(bytes(self.text), size - 1)
        if size:
            self._part(size)

    def _finish_text(self, incomplete_reason: int) -> None:
        if incomplete_reason:
            self._flush_text()
            return
        if self.utf8.need:
            raise BrokenError("utf8", self.offset, self.root)
        content = wire.string_content(bytes(self.text))
        self._send(FrameKind.VALUE, self.root, content, self.offset, self.text_parts)
        self.is_done = True


class _Sink:
    """Takes the bytes of a string."""

    def starts(self, offset: int) -> None:
        """A code point begins."""

    def counts(self) -> None:
        """It counts as a character."""

    def becomes(self, points: _Points, offset: int) -> None:
        """The code points that the open one can still be; one: it is read."""

    def more(self, data: bytes, offset: int) -> None:
        """Its bytes, or some of them."""
        raise NotImplementedError


class _KeySink(_Sink):
    def __init__(self, encoder: Encoder, around: Place) -> None:
        self.encoder = encoder
        self.text = bytearray()
        self.around = around
        self.limit = encoder.limits.max_key_bytes
        self.names = [name.encode() for name in around.rule.properties]

    def more(self, data: bytes, offset: int) -> None:
        room = self.limit - len(self.text)
        for byte in data[:room]:
            self.text.append(byte)
            can_be_known = any(name.startswith(self.text) for name in self.names)
            if self.around.rule.additional == FORBIDDEN and not can_be_known:
                raise BrokenError("additionalProperties", offset, self.around)
            self.encoder._obey(self.encoder.judge.take_key(byte), offset)  # noqa: SLF001  # one machine in two classes
        if len(data) > room:
            raise BrokenError("limit", offset, self.around, D.KEY_SIZE)


class _StringSink(_Sink):
    def __init__(self, encoder: Encoder, place: Place) -> None:
        self.encoder = encoder
        self.place = place
        self.text = bytearray()
        self.chars = 0
        self.parts = 0
        self.room = encoder._room(place, 0)  # noqa: SLF001  # one machine in two classes
        self._check_room(encoder.offset - 1)
        shape = place.rule.pattern or place.rule.shape
        self.keyword = "pattern" if place.rule.pattern else "format"
        self.pattern = slow_pattern(shape.text) if shape else None
        if self.pattern is not None:
            self.state = self.pattern.start()
            if self.pattern.is_dead(self.state):
                raise BrokenError(self.keyword, encoder.offset - 1, place)

    def _check_room(self, offset: int) -> None:
        if self.room < 4:
            raise BrokenError("limit", offset, self.place, D.BUFFER)

    def starts(self, offset: int) -> None:
        if self.chars == self.place.rule.max_length:
            raise BrokenError("maxLength", offset, self.place)

    def counts(self) -> None:
        self.chars += 1

    def becomes(self, points: _Points, offset: int) -> None:
        if self.pattern is None:
            return
        if points and not any(self.pattern.can_take(self.state, low, high) for low, high in points):
            raise BrokenError(self.keyword, offset, self.place)
        if len(points) == 1 and points[0][0] == points[0][1]:
            self.state = self.pattern.step(self.state, points[0][0])

    def more(self, data: bytes, offset: int) -> None:
        rule = self.place.rule
        room = self.encoder.limits.max_format_bytes - len(self.text)
        for number, byte in enumerate(data):
            if rule.enum_strings is not None:
                if not any(member.startswith(self.text + bytes((byte,))) for member in rule.enum_strings):
                    raise BrokenError(rule.enum_keyword, offset, self.place)
            elif rule.string_format and number == room:
                raise BrokenError("limit", offset, self.place, D.FORMAT_SIZE)
            self.encoder._obey(self.encoder.judge.take(byte), offset)  # noqa: SLF001
            self.text.append(byte)
            if rule.enum_strings is None and not rule.string_format:
                self._cut_parts(offset)

    def _cut_parts(self, offset: int) -> None:
        while len(self.text) > self.room:
            size = _cut(bytes(self.text), self.room)
            content = wire.string_content(bytes(self.text[:size]))
            self.encoder._send(FrameKind.PART, self.place, content, offset)  # noqa: SLF001
            del self.text[:size]
            self.parts += 1
            self.room = self.encoder._room(self.place, self.parts)  # noqa: SLF001
            self._check_room(offset)

    def end(self) -> None:
        """The closing quote."""
        rule = self.place.rule
        offset = self.encoder.offset - 1
        if rule.enum_strings is not None:
            if bytes(self.text) not in rule.enum_strings:
                raise BrokenError(rule.enum_keyword, offset, self.place)
        elif self.chars < rule.min_length:
            raise BrokenError("minLength", offset, self.place)
        elif self.pattern is not None and not self.pattern.accepts(self.state):
            raise BrokenError(self.keyword, offset, self.place)
        elif rule.string_format and not keeps_format(rule, bytes(self.text)):
            raise BrokenError("format", offset, self.place)
        judge = self.encoder.judge
        whole = bytes(self.encoder.read[judge.open[-1].start : offset + 1])
        self.encoder._obey(judge.end(whole), offset)  # noqa: SLF001
        self._cut_parts(offset)
        content = wire.string_content(bytes(self.text))
        self.encoder._send(FrameKind.VALUE, self.place, content, offset, self.parts)  # noqa: SLF001


def _utf8_points(utf8: Utf8, raw: bytes) -> _Points:
    """The code points that begin with the bytes."""
    if not utf8.need:
        return ((ord(raw.decode()),) * 2,)
    low = raw + bytes((utf8.low,)) + b"\x80" * (utf8.need - 1)
    high = raw + bytes((utf8.high,)) + b"\xbf" * (utf8.need - 1)
    return ((ord(low.decode()), ord(high.decode())),)


def _unit_points(low: int, high: int, first_half: int) -> _Points:
    """The code points that begin with a UTF-16 unit from `low` to `high`, or end so behind a first half."""
    points = []
    if first_half:
        base = 0x10000 + (first_half - 0xD800) * 0x400 - 0xDC00
        points.append((base + max(low, 0xDC00), base + min(high, 0xDFFF)))
    else:
        points.append((low, min(high, 0xD7FF)))
        points.append((max(low, 0xE000), high))
        first, last = max(low, 0xD800) - 0xD800, min(high, 0xDBFF) - 0xD800
        points.append((0x10000 + first * 0x400, 0x10000 + last * 0x400 + 0x3FF))
    return tuple((first, last) for first, last in points if first <= last)


def _is_number_prefix(text: bytes) -> bool:
    """Whether a JSON number can begin with the text, or be it."""
    rest = text.removeprefix(b"-")
    mantissa, mark, exponent = rest.lower().partition(b"e")
    whole, point, fraction = mantissa.partition(b".")
    if not all(byte in _DIGITS for byte in whole + fraction):
        return False
    if len(whole) > 1 and whole.startswith(b"0"):
        return False
    if (point or mark) and not whole:
        return False
    if mark and point and not fraction:
        return False
    digits = exponent[1:] if exponent[:1] in (b"+", b"-") else exponent
    return all(byte in _DIGITS for byte in digits)


def _number_content(rule: Rule, text: bytes) -> bytes:
    is_integer_text = not set(text) & set(b".eE")
    if not rule.types & FieldType.NUMBER or is_integer_text:
        value = to_int64(parse_number(text))
        if value is None:
            return wire.json_content(text)
        if rule.is_double and rule.types & FieldType.NUMBER and int(float(value)) == value:
            return wire.double_content(float(text))
        return wire.int_content(value)
    double = float(text)
    if double in (float("inf"), float("-inf")) or (double == 0 and parse_number(text)[0]):
        return wire.json_content(text)
    return wire.double_content(double)


_ANY = Rule()
assert _ANY.max_items == UNBOUNDED  # noqa: S101  # an untyped value has no bounds
