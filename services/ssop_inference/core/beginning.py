"""The beginning of a document that another node wrote: from its frames back to the text that makes them again.

Blanks and escapes of the first text are not known and do not matter: the text is the one that this codec reads to the
very same frames, which `DocumentWriter` checks frame by frame.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ssop.v1 import frame_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError, invalid_request
from ssop_codec import Decoder, FrameError, FrameKind
from ssop_inference.core.request import check_buffer

_MAX_WORD_CHARS: Final = 256
_FIELD: Final = "continue_from"
# The one fixed form of the grammar; see `core.constraint`.
ITEM_SEPARATOR: Final = ", "
KEY_SEPARATOR: Final = ": "

Token = str | int
"""One step from a container to a value: a key, or an index."""


@dataclass(slots=True)
class OpenContainer:
    """An object or array that was begun and not closed. `count` members were begun, of objects these `keys`.

    `words`: members that are whole short strings, booleans or null; they tell branches of a union apart.
    """

    is_array: bool
    tokens: tuple[Token, ...]
    count: int = 0
    keys: list[str] = field(default_factory=list)
    words: dict[str, str | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is final. `text` makes `frames` again; of plain text it is the text, and `parts` its flushed pieces.

    `containers`: those that are open, outermost first. `open_string`: the characters of a string that is still being
    written; None where none is. `is_whole`: the root is closed, and only the end is missing.
    """

    frames: tuple[frame_pb2.Frame, ...]
    stream_buffer_bytes: int
    is_text: bool
    text: str
    parts: tuple[str, ...] = ()
    containers: tuple[OpenContainer, ...] = ()
    open_string: str | None = None
    open_string_tokens: tuple[Token, ...] = ()
    ends_with_number: bool = False
    is_whole: bool = False

    @property
    def next_seq(self) -> int:
        """Sequence number of the next frame."""
        return len(self.frames) + 1


def read_beginning(chunk: bytes, next_seq: int) -> Beginning:
    """Read what a caller sent as `continue_from`.

    Raises REQUEST_INVALID for bytes that are no beginning of one document, header included.
    """
    decoder = Decoder()
    try:
        decoded = decoder.feed(chunk)
        frames = tuple(frame_pb2.Chunk.FromString(chunk).frames)
    except (FrameError, ValueError) as error:
        raise _refuse("is no chunk") from error
    is_numbered = all(frame.seq == number for number, frame in enumerate(frames, start=1))
    if decoder.missing or not is_numbered or len(frames) + 1 != next_seq:
        raise _refuse("must hold every frame before next_seq")
    header = decoder.header
    if header is None or decoder.end is not None or any(frame.document for frame in frames):
        raise _refuse("must be the beginning of one document")
    check_buffer(header.stream_buffer_bytes)
    writer = _TextWriter()
    parts: list[str] = []
    for frame, wire in zip(decoded, frames, strict=True):
        if frame.kind == FrameKind.HEADER:
            continue
        if header.is_text:
            parts.append(wire.string_value)
        else:
            writer.take(wire, frame.tokens)
    if header.is_text:
        is_whole = bool(parts) and frames[-1].kind == frame_pb2.FRAME_KIND_VALUE
        flushed = tuple(parts[:-1] if is_whole else parts)
        return Beginning(frames, header.stream_buffer_bytes, True, "".join(parts), flushed, is_whole=is_whole)
    return Beginning(
        frames,
        header.stream_buffer_bytes,
        False,
        "".join(writer.pieces),
        containers=tuple(writer.stack),
        open_string=writer.open_string,
        open_string_tokens=writer.open_string_tokens,
        ends_with_number=writer.ends_with_number,
        is_whole=writer.is_whole,
    )


class _TextWriter:
    """Writes the JSON text of frames in their order."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.stack: list[OpenContainer] = []
        self.open_string: str | None = None
        self.open_string_tokens: tuple[Token, ...] = ()
        self.ends_with_number = False
        self.is_whole = False

    def take(self, frame: frame_pb2.Frame, tokens: tuple[Token, ...]) -> None:
        """A PART, VALUE or CLOSE. Raises REQUEST_INVALID where it can't come now."""
        if self.is_whole:
            raise _refuse("goes on after its root")
        self.ends_with_number = False
        content = frame.WhichOneof("content") or ""
        if self.open_string is not None:
            if tokens != self.open_string_tokens or content != "string_value":
                raise _refuse("leaves a string open")
            self._write_piece(frame, is_first=False)
            return
        if content in ("object_size", "array_size"):
            self._close(tokens, content == "array_size", getattr(frame, content))
            return
        self._enter(tokens)
        if content == "string_value":
            self._write_piece(frame, is_first=True, tokens=tokens)
            return
        if content not in _SCALARS:
            raise _refuse("holds a frame without a value")
        if content in ("bool_value", "null_value"):
            self._note(tokens, frame.bool_value if content == "bool_value" else None)
        self.pieces.append(_SCALARS[content](frame))
        self.ends_with_number = content in _NUMBERS
        self.is_whole = not self.stack

    def _write_piece(self, frame: frame_pb2.Frame, *, is_first: bool, tokens: tuple[Token, ...] = ()) -> None:
        is_part = frame.kind == frame_pb2.FRAME_KIND_PART
        if is_first:
            self.open_string, self.open_string_tokens = "", tokens
            self.pieces.append('"')
        self.pieces.append(json.dumps(frame.string_value, ensure_ascii=False)[1:-1])
        if is_part:
            self.open_string = (self.open_string or "") + frame.string_value
            return
        self.pieces.append('"')
        if is_first and len(frame.string_value) <= _MAX_WORD_CHARS:
            self._note(tokens, frame.string_value)
        self.open_string, self.open_string_tokens = None, ()
        self.is_whole = not self.stack

    def _note(self, tokens: tuple[Token, ...], word: str | bool | None) -> None:
        if tokens and isinstance(tokens[-1], str):
            self.stack[-1].words[tokens[-1]] = word

    def _enter(self, tokens: tuple[Token, ...]) -> None:
        """Open what lies between the innermost open container and a value, and write its key."""
        if self.stack and tokens[: len(self.stack) - 1] != self.stack[-1].tokens:
            raise _refuse("leaves a container open")
        if len(tokens) < len(self.stack):
            raise _refuse("leaves a container open")
        for depth in range(len(self.stack), len(tokens)):
            if depth:
                self._step(tokens[depth - 1])
            is_array = isinstance(tokens[depth], int)
            self.stack.append(OpenContainer(is_array, tokens[:depth]))
            self.pieces.append("[" if is_array else "{")
        if tokens:
            self._step(tokens[-1])

    def _step(self, token: Token) -> None:
        container = self.stack[-1]
        if container.is_array != isinstance(token, int) or (container.is_array and token != container.count):
            raise _refuse("skips a member")
        if container.count:
            self.pieces.append(ITEM_SEPARATOR)
        container.count += 1
        if isinstance(token, str):
            if token in container.keys:
                raise _refuse("has a key twice")
            container.keys.append(token)
            self.pieces.append(json.dumps(token, ensure_ascii=False) + KEY_SEPARATOR)

    def _close(self, tokens: tuple[Token, ...], is_array: bool, size: int) -> None:
        if not (self.stack and self.stack[-1].tokens == tokens):
            # An empty container has no frame but this one.
            self._enter(tokens)
            self.stack.append(OpenContainer(is_array, tokens))
            self.pieces.append("[" if is_array else "{")
        container = self.stack.pop()
        if container.is_array != is_array or container.count != size:
            raise _refuse("closes what it did not open")
        self.pieces.append("]" if is_array else "}")
        self.is_whole = not self.stack


def _write_bool(frame: frame_pb2.Frame) -> str:
    return "true" if frame.bool_value else "false"


_SCALARS: Final[Mapping[str, Callable[[frame_pb2.Frame], str]]] = {
    "double_value": lambda frame: repr(frame.double_value),
    "int_value": lambda frame: str(frame.int_value),
    "json_value": lambda frame: frame.json_value.decode(),
    "bool_value": _write_bool,
    "null_value": lambda _: "null",
}
_NUMBERS: Final = frozenset({"double_value", "int_value", "json_value"})


def refuse_continuing(detail: str) -> MeshError:
    """UNSUPPORTED: what was begun can't be gone on with here. The detail never holds content."""
    return MeshError(
        ErrorReason.ERROR_REASON_UNSUPPORTED,
        f"the document can't be continued: {detail}",
        metadata={"feature": _FIELD, "detail": detail},
    )


def _refuse(text: str) -> MeshError:
    return invalid_request((_FIELD, text))
