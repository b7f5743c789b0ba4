"""gRPC as raw HTTP/2 frames, so that a test sends the very headers that another program sends. Plain text."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import h2.config
import h2.connection
import h2.events

_GOAWAY: Final = 7
_HEAD: Final = struct.Struct(">?I")


@dataclass
class RawStream:
    """What a stream has got so far."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    is_ended: bool = False
    is_reset: bool = False

    def messages(self) -> list[bytes]:
        """The messages that arrived whole."""
        found, rest = [], self.data
        while len(rest) >= _HEAD.size:
            _, size = _HEAD.unpack_from(rest)
            if len(rest) < _HEAD.size + size:
                break
            found.append(rest[_HEAD.size : _HEAD.size + size])
            rest = rest[_HEAD.size + size :]
        return found


class RawConnection:
    """One connection. `open` begins a stream with one message; `streams` fill as frames arrive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.streams: dict[int, RawStream] = {}
        self.has_goaway = False
        self._is_over = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._h2.initiate_connection()
        self._flush()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer.transport.abort()

    def open(self, headers: Mapping[str, str], message: bytes) -> RawStream:
        """Begin a stream with these headers, in their order, and one message; our side is closed then."""
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, list(headers.items()))
        self._h2.send_data(number, _HEAD.pack(False, len(message)) + message, end_stream=True)
        stream = self.streams[number] = RawStream()
        self._flush()
        return stream

    async def until_ended(self, stream: RawStream, timeout_s: float = 60) -> RawStream:
        """Wait for the end of a stream, or of the connection: one that began after that hears of neither."""
        async with asyncio.timeout(timeout_s):
            while not stream.is_ended and not self._is_over:
                self._changed.clear()
                await self._changed.wait()
        return stream

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())

    async def _read(self) -> None:
        while (data := await self._read_frame()) is not None:
            for event in self._h2.receive_data(data):
                self._take(event)
            self._flush()
            self._changed.set()
        self.has_goaway = self._is_over = True
        for stream in self.streams.values():
            stream.is_ended = True
        self._changed.set()

    async def _read_frame(self) -> bytes | None:
        """The next frame; None at the end. The library takes GOAWAY for the end, though streams go on after it."""
        try:
            while True:
                head = await self._reader.readexactly(9)
                body = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] != _GOAWAY:
                    return head + body
                self.has_goaway = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def _take(self, event: h2.events.Event) -> None:
        stream = self.streams.get(getattr(event, "stream_id", None) or 0)
        if stream is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            stream.headers = dict(_pairs(event.headers))
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers = dict(_pairs(event.headers))
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data or b""
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        elif isinstance(event, h2.events.StreamEnded):
            stream.is_ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.is_ended = stream.is_reset = True


def _pairs(headers: object) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in headers] if isinstance(headers, list) else []


@asynccontextmanager
async def raw_connection(target: str) -> AsyncIterator[RawConnection]:
    """A connection to `host:port`."""
    host, _, port = target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with RawConnection(reader, writer) as connection:
        yield connection
