"""Strings, keys and plain text, for the slow encoder. Product code never imports it."""

from __future__ import annotations

from collections.abc import Generator

from . import wire
from ._judge_py import continues
from ._pattern_py import slow_pattern
from ._reader_py import BrokenError, D, Place, Reading, SlowReader, Utf8, cut_at
from .checks import keeps_format
from .constants import FrameKind
from .rules import FORBIDDEN

_Points = tuple[tuple[int, int], ...]
_ESCAPES = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}


def _read_characters(  # noqa: C901, PLR0912, PLR0915  # the grammar of strings, in order
    reader: SlowReader, place: Place, take: _Sink
) -> Reading:
    """The bytes of a string up to its closing quote, unescaped, into `take`."""
    utf8 = Utf8()
    high = 0
    raw = b""
    while True:
        byte = yield from reader.next_byte()
        at = reader.at
        if utf8.need:
            if not utf8.accepts(byte):
                raise BrokenError("utf8", at, place)
            raw += bytes((byte,))
            take.becomes(_utf8_points(utf8, raw), at)
            take.more(bytes((byte,)), at)
        elif byte == 0x5C:
            if not high:
                take.starts(at)
                take.escapes(((0, 0xD7FF), (0xE000, 0x10FFFF)), at)
            byte = yield from reader.next_byte()
            at = reader.at
            if byte == 0x75:
                unit = 0
                for left in (12, 8, 4, 0):
                    byte = yield from reader.next_byte()
                    at = reader.at
                    digit = chr(byte)
                    if digit not in "0123456789abcdefABCDEF":
                        raise BrokenError("syntax", at, place, D.HEX)
                    unit = unit * 16 + int(digit, 16)
                    if left or (0xD800 <= unit <= 0xDBFF and not high):
                        take.escapes(_unit_points(unit << left, ((unit + 1) << left) - 1, high), at)
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


def allowed_names(reader: SlowReader, around: Place) -> list[bytes]:
    """The properties that can have a value."""
    return [name.encode() for name, node in around.rule.properties.items() if reader.schema.rules[node].types]


def read_key(reader: SlowReader, around: Place, seen: set[bytes]) -> Generator[None, int, bytes]:
    """A key behind its opening quote."""
    reader.obey(reader.judge.begin_key(), reader.at)
    sink = _KeySink(reader, around, seen)
    yield from _read_characters(reader, around, sink)
    return bytes(sink.text)


def read_string(reader: SlowReader, place: Place) -> Reading:
    """A string behind its opening quote."""
    sink = _StringSink(reader, place)
    yield from _read_characters(reader, place, sink)
    sink.end()


def read_text(reader: SlowReader) -> Reading:
    """A document that is plain text."""
    while True:
        byte = yield
        if not reader.utf8.accepts(byte):
            raise BrokenError("utf8", reader.at, reader.root)
        reader.text.append(byte)
        room = reader.room(reader.root, reader.text_parts)
        if len(reader.text) > room:
            _send_part(reader, cut_at(bytes(reader.text), room))


def _send_part(reader: SlowReader, size: int) -> None:
    piece = bytes(reader.text[:size])
    reader.send(FrameKind.PART, reader.root, wire.string_content(piece), reader.at)
    del reader.text[:size]
    reader.text_parts += 1


def flush_text(reader: SlowReader) -> None:
    """Send the whole code points so far."""
    size = len(reader.text)
    if size and reader.utf8.need:
        size = cut_at(bytes(reader.text), size - 1)
    if size:
        _send_part(reader, size)


def finish_text(reader: SlowReader, incomplete_reason: int) -> None:
    """Send the last piece of a plain text."""
    if incomplete_reason:
        flush_text(reader)
        return
    if reader.utf8.need:
        raise BrokenError("utf8", reader.offset, reader.root)
    content = wire.string_content(bytes(reader.text))
    reader.send(FrameKind.VALUE, reader.root, content, reader.offset, reader.text_parts)
    reader.is_done = True


class _Sink:
    """Takes the bytes of a string."""

    def starts(self, offset: int) -> None:
        """A code point begins."""

    def counts(self) -> None:
        """It counts as a character."""

    def becomes(self, points: _Points, offset: int) -> None:
        """The code points that the open one can still be; one: it is read."""

    def escapes(self, points: _Points, offset: int) -> None:
        """The same of one that is escaped, read in part; none: it will be no JSON."""
        raise NotImplementedError

    def more(self, data: bytes, offset: int) -> None:
        """Its bytes, or some of them."""
        raise NotImplementedError


class _KeySink(_Sink):
    def __init__(self, reader: SlowReader, around: Place, seen: set[bytes]) -> None:
        self.reader = reader
        self.text = bytearray()
        self.around = around
        self.limit = reader.limits.max_key_bytes
        # Of properties that can have a value, those that did not come yet.
        self.names = [name for name in allowed_names(reader, around) if name not in seen]

    def escapes(self, points: _Points, offset: int) -> None:
        if not points:
            return
        if self.around.rule.additional == FORBIDDEN and not self._can_be_known(points):
            raise BrokenError("additionalProperties", offset, self.around)
        self.reader.obey(self.reader.judge.becomes(points, is_key=True), offset)

    def _can_be_known(self, points: _Points) -> bool:
        return any(continues(name, bytes(self.text), points) for name in self.names)

    def more(self, data: bytes, offset: int) -> None:
        room = self.limit - len(self.text)
        for byte in data[:room]:
            self.text.append(byte)
            if self.around.rule.additional == FORBIDDEN and not self._can_be_known(()):
                raise BrokenError("additionalProperties", offset, self.around)
            self.reader.obey(self.reader.judge.take_key(byte), offset)
        if len(data) > room:
            raise BrokenError("limit", offset, self.around, D.KEY_SIZE)


class _StringSink(_Sink):
    def __init__(self, reader: SlowReader, place: Place) -> None:
        self.reader = reader
        self.place = place
        self.text = bytearray()
        self.chars = 0
        self.parts = 0
        self.room = reader.room(place, 0)
        self._check_room(reader.offset - 1)
        shape = place.rule.pattern or place.rule.shape
        self.keyword = "pattern" if place.rule.pattern else "format"
        self.pattern = slow_pattern(shape.text) if shape else None
        if self.pattern is not None:
            self.state = self.pattern.start()
            if self.pattern.is_dead(self.state):
                raise BrokenError(self.keyword, reader.offset - 1, place)

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

    def escapes(self, points: _Points, offset: int) -> None:
        if not points:
            return
        members = self.place.rule.enum_strings
        if members is not None and not any(continues(member, bytes(self.text), points) for member in members):
            raise BrokenError(self.place.rule.enum_keyword, offset, self.place)
        self.becomes(points, offset)
        self.reader.obey(self.reader.judge.becomes(points, is_key=False), offset)

    def more(self, data: bytes, offset: int) -> None:
        rule = self.place.rule
        room = self.reader.limits.max_format_bytes - len(self.text)
        for number, byte in enumerate(data):
            if rule.enum_strings is not None:
                if not any(member.startswith(self.text + bytes((byte,))) for member in rule.enum_strings):
                    raise BrokenError(rule.enum_keyword, offset, self.place)
            elif rule.string_format and number == room:
                raise BrokenError("limit", offset, self.place, D.FORMAT_SIZE)
            self.reader.obey(self.reader.judge.take(byte), offset)
            self.text.append(byte)
            if rule.enum_strings is None and not rule.string_format:
                self._cut_parts(offset)

    def _cut_parts(self, offset: int) -> None:
        while len(self.text) > self.room:
            size = cut_at(bytes(self.text), self.room)
            content = wire.string_content(bytes(self.text[:size]))
            self.reader.send(FrameKind.PART, self.place, content, offset)
            del self.text[:size]
            self.parts += 1
            self.room = self.reader.room(self.place, self.parts)
            self._check_room(offset)

    def end(self) -> None:
        """The closing quote."""
        rule = self.place.rule
        offset = self.reader.offset - 1
        if rule.enum_strings is not None:
            if bytes(self.text) not in rule.enum_strings:
                raise BrokenError(rule.enum_keyword, offset, self.place)
        elif self.chars < rule.min_length:
            raise BrokenError("minLength", offset, self.place)
        elif self.pattern is not None and not self.pattern.accepts(self.state):
            raise BrokenError(self.keyword, offset, self.place)
        elif rule.string_format and not keeps_format(rule, bytes(self.text)):
            raise BrokenError("format", offset, self.place)
        judge = self.reader.judge
        whole = bytes(self.reader.read[judge.open[-1].start : offset + 1])
        self.reader.obey(judge.end(whole), offset)
        self._cut_parts(offset)
        content = wire.string_content(bytes(self.text))
        self.reader.send(FrameKind.VALUE, self.place, content, offset, self.parts)


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
