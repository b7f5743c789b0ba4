"""HTTP/2 frames as a proxy that harms them sees them: cut out of bytes, changed, and made. No I/O, no clock.

Header blocks are passed on as they are, always: both ends keep a table of header fields that they must see alike
(RFC 7541). So streams are only told by their numbers, and a call by its first HEADERS.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client begins a connection with (RFC 9113, 3.4)."""
INTERNAL_ERROR: Final = 2
CANCEL: Final = 8
"""Error codes of RST_STREAM (RFC 9113, 7)."""
_HEAD_BYTES: Final = 9
_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_PREFIX_BYTES: Final = 5
_MAX_FRAME_BYTES: Final = 1_048_576


class Kind(IntEnum):
    """Types of frames that matter here (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class WireFrame(NamedTuple):
    """A frame: its type, its stream (0: the connection), its flags, and all of its bytes."""

    kind: int
    stream: int
    flags: int
    data: bytes

    @property
    def ends_headers(self) -> bool:
        """The header block is whole with it."""
        return self.kind in {Kind.HEADERS, Kind.CONTINUATION} and bool(self.flags & _END_HEADERS)

    @property
    def ends_stream(self) -> bool:
        """Nothing more comes on its stream from this side."""
        return self.kind == Kind.RST_STREAM or (
            self.kind in {Kind.DATA, Kind.HEADERS} and bool(self.flags & _END_STREAM)
        )

    @property
    def payload_bytes(self) -> int:
        """What it takes of the windows, if it is DATA."""
        return len(self.data) - _HEAD_BYTES


class Cutter:
    """Cuts a direction of a connection into frames. Raises ValueError for a frame beyond any setting of gRPC."""

    def __init__(self, *, has_preface: bool) -> None:
        self._rest = b""
        self._preface_bytes = len(PREFACE) if has_preface else 0

    def feed(self, data: bytes) -> Iterator[WireFrame]:
        """The frames that are whole now; the preface comes first, as a frame of the type -1."""
        self._rest += data
        if self._preface_bytes:
            if len(self._rest) < self._preface_bytes:
                return
            yield WireFrame(-1, 0, 0, self._rest[: self._preface_bytes])
            self._rest, self._preface_bytes = self._rest[self._preface_bytes :], 0
        while len(self._rest) >= _HEAD_BYTES:
            size = int.from_bytes(self._rest[:3], "big")
            if size > _MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            end = _HEAD_BYTES + size
            if len(self._rest) < end:
                return
            stream = int.from_bytes(self._rest[5:9], "big") & 0x7FFFFFFF
            yield WireFrame(self._rest[3], stream, self._rest[4], self._rest[:end])
            self._rest = self._rest[end:]


class Garbler:
    """Overwrites the messages of gRPC in DATA frames with 0xff, which no message begins with; lengths stay."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def garble(self, frame: WireFrame) -> bytes:
        """The bytes of a DATA frame, harmed. Padded ones, which gRPC does not send, stay as they are."""
        body = bytearray(frame.data[_HEAD_BYTES:])
        position, left = 0, self._left.get(frame.stream, 0)
        while position < len(body) and not frame.flags & _PADDED:
            if not left:
                if len(body) - position < _PREFIX_BYTES:
                    break
                left = int.from_bytes(body[position + 1 : position + _PREFIX_BYTES], "big")
                position += _PREFIX_BYTES
            size = min(left, len(body) - position)
            body[position : position + size] = b"\xff" * size
            position, left = position + size, left - size
        if left:
            self._left[frame.stream] = left
        else:
            self._left.pop(frame.stream, None)
        return frame.data[:_HEAD_BYTES] + bytes(body)


def rst_stream(stream: int, code: int) -> bytes:
    """A frame that ends a stream at once."""
    return _frame(Kind.RST_STREAM, stream, code.to_bytes(4, "big"))


def window_update(size: int) -> bytes:
    """A frame that gives the window of the connection back what swallowed DATA took. `size` is from 1 up."""
    return _frame(Kind.WINDOW_UPDATE, 0, size.to_bytes(4, "big"))


def _frame(kind: Kind, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + payload
