"""HTTP/2 by hand, for what no client library sends."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
CALL: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/test.T/M"),
    (b":authority", b"test"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame of RFC 9113, 4.1."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream_id) + payload


def block(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Headers as literals that nobody indexes (RFC 7541, 6.2.2), names and values shorter than 127 bytes or so."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers)


def _text(value: bytes) -> bytes:
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, encoded = len(value) - 127, b"\x7f"
    while rest >= 128:
        encoded += bytes([rest % 128 + 128])
        rest //= 128
    return encoded + bytes([rest]) + value


def call(stream_id: int, headers: Sequence[tuple[bytes, bytes]] = CALL, *, is_whole: bool = False) -> bytes:
    """The HEADERS of a call; `is_whole`: nothing follows."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if is_whole else 0), stream_id, block(headers))


def message(stream_id: int, payload: bytes, *, is_last: bool = True, flag: int = 0) -> bytes:
    """A gRPC message in one DATA frame."""
    prefixed = struct.pack("!BI", flag, len(payload)) + payload
    return frame(DATA, END_STREAM if is_last else 0, stream_id, prefixed)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that came."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


class RawClient:
    """A connection that sends what it is told, as a client; `accept_raw` gives one of a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, path: str, *, first: bytes = PREFACE + frame(SETTINGS, 0, 0)) -> "RawClient":
        """Connect to a unix socket and send the beginning."""
        client = cls(*await asyncio.open_unix_connection(path))
        await client.send(first)
        return client

    async def send(self, data: bytes) -> None:
        """Send bytes; a server that has hung up is no error."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            pass

    async def next(self) -> Frame | None:
        """The next frame; None at the end."""
        try:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Frame(head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, payload)

    async def until(self, kind: int, stream_id: int | None = None) -> Frame | None:
        """The next frame of a kind, and of a stream; None at the end."""
        while (found := await self.next()) is not None:
            if found.kind == kind and stream_id in {None, found.stream_id}:
                return found
        return None

    async def rest(self) -> list[Frame]:
        """Everything until the server hangs up."""
        frames: list[Frame] = []
        while (found := await self.next()) is not None:
            frames.append(found)
        self.close()
        return frames

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@asynccontextmanager
async def accept_raw(path: str) -> AsyncIterator["asyncio.Queue[RawClient]"]:
    """Listen on a unix socket. Each connection is put in the queue once its preface is read and SETTINGS are sent."""
    accepted: asyncio.Queue[RawClient] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PREFACE))
        connection = RawClient(reader, writer)
        await connection.send(frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))
        accepted.put_nowait(connection)

    server = await asyncio.start_unix_server(take, path)
    try:
        yield accepted
    finally:
        server.close()
        while not accepted.empty():
            accepted.get_nowait().close()
