"""The state of the slow encoder, which its modules share. Product code never imports it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import IntEnum, auto

from . import wire
from ._judge_py import Finding, SlowJudge
from .constants import MIN_BUFFER_BYTES, FrameKind
from .errors import Violation
from .limits import Limits
from .rules import Rule, Schema
from .schema import raw_schema
from .wire import PathStep


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
BLANKS = frozenset(b" \t\r\n")
DIGITS = frozenset(b"0123456789")
ANY = Rule()
"""Of an untyped value."""


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


def cut_at(text: bytes, limit: int) -> int:
    """The last end of a code point at `limit` or before; `text` is longer than `limit`."""
    while text[limit] & 0xC0 == 0x80:
        limit -= 1
    return limit


class SlowReader:
    """The state of one document, and the frames that it has made."""

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
                self.push(frame)

    # -- frames -------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """What is pending becomes a chunk."""
        if self.pending:
            self.sealed.append(self.pending)
            self.pending = b""

    def push(self, frame: bytes) -> None:
        """Append a frame."""
        if len(self.pending) + len(frame) > self.buffer_bytes:
            self.seal()
        self.pending += frame
        if len(frame) > self.buffer_bytes:
            self.seal()
        self.seq += 1

    def send(self, kind: int, place: Place, content: bytes, offset: int, parts: int = 0) -> None:
        """Make a frame of a value, and append it."""
        head = wire.head(self.seq, kind, place.node, wire.path_steps(place.path), parts, self.document)
        frame = wire.chunk_of(head + content)
        if len(frame) > self.buffer_bytes:
            raise BrokenError("limit", offset, place, D.BUFFER)
        self.push(frame)
        if not self.has_field:
            self.has_field = True
            self.seal()

    def room(self, place: Place, parts: int) -> int:
        """Bytes of a text that fit one frame at the place."""
        length = len(wire.varint(self.buffer_bytes))
        path = wire.path_steps(place.path)
        head = wire.head(self.seq, FrameKind.VALUE, place.node, path, parts + 1, self.document)
        return self.buffer_bytes - 1 - length - len(head) - 1 - length

    # -- the document -------------------------------------------------------------------------------------

    def next_byte(self) -> Generator[None, int, int]:
        """The next byte of the document, the one held back first."""
        if self.held is not None:
            byte, self.held = self.held, None
            return byte
        return (yield)

    @property
    def at(self) -> int:
        """Offset of the byte that was read last."""
        return self.offset - 1

    def span(self, start: int, end: int) -> None:
        """Note where a value stands, if that is asked for."""
        if self.track_spans:
            self.spans.append((self.seq - 1, start, end))

    def obey(self, found: Finding | None, offset: int) -> None:
        """Raise what the judge found."""
        if found is not None:
            rule = found.check.rule
            place = Place(rule, 0, (), found.value.pointer, structure=rule)
            raise BrokenError(found.rule, offset, place, D.NONE, *rule.required)
