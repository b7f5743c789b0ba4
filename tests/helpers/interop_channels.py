"""Two clients behind one face for the interop cases: the native transport's, and grpcio's.

The native `Peer` has unary calls and streams of the server, which is all that services need; a dialogue in which the
client streams too is held on its connection.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from ssop_chassis.errors import MeshError
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import NO_TLS, open_tls
from ssop_transport import compression, wire
from ssop_transport.calling import Calling
from ssop_transport.client import connect

Metadata = Mapping[str, str | bytes]
LIMIT_BYTES: Final = 4_194_304


@dataclass(frozen=True)
class Ended:
    """How a call ended, and its metadata."""

    code: int
    message: str = ""
    initial: Metadata = field(default_factory=dict)
    trailing: Metadata = field(default_factory=dict)


class Dialogue(Protocol):
    """A call in which both may stream."""

    async def write(self, message: bytes) -> None:
        """Send a message; one that the call is over for is dropped."""
        ...

    async def finish(self) -> None:
        """Send no more."""
        ...

    async def read(self) -> bytes | None:
        """The next message; None at the end, however it came."""
        ...

    def cancel(self) -> None:
        """Break the call off."""
        ...

    async def end(self) -> Ended:
        """Wait for the end."""
        ...


class Channel(Protocol):
    """A client. Calls raise where they fail."""

    async def unary(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """One message for one message."""
        ...

    async def collect(self, method: str, request: bytes, timeout_s: float) -> list[bytes]:
        """All messages of a stream."""
        ...

    async def ask(self, method: str, message: bytes, timeout_s: float, metadata: Metadata | None = None) -> Ended:
        """A call with one message, to its end."""
        ...

    async def dialogue(self, method: str, timeout_s: float, metadata: Metadata | None = None) -> Dialogue:
        """Begin a dialogue."""
        ...

    async def close(self) -> None:
        """Drop the connection."""
        ...


class NativeDialogue(Calling):
    """The native transport's, whose client tells of each message whether it is to be in gzip."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self.start(timeout_s)
        self._is_cancelled = False
        self._error: MeshError | None = None

    async def write(self, message: bytes, *, is_packed: bool = False) -> None:
        assert self.stream is not None
        self.stream.write(compression.pack(message) if is_packed else message, is_packed)

    async def finish(self) -> None:
        assert self.stream is not None
        self.stream.finish()

    async def read(self) -> bytes | None:
        assert self.stream is not None
        while (message := self.stream.take()) is None and not self.is_over and self._error is None:
            try:
                await self.await_news()
                self.check_time()
            except MeshError as error:
                self._error = error
        return message

    def cancel(self) -> None:
        self._is_cancelled = True
        self.leave()

    async def end(self) -> Ended:
        while not self._is_cancelled and await self.read() is not None:
            pass
        self.leave()
        assert self.stream is not None
        if self._is_cancelled:
            return Ended(1)
        if self._error is not None:
            return Ended(self._error.code, self._error.message)
        head, tail = (block.pairs if block else [] for block in (self.stream.head, self.stream.tail))
        pairs = dict(tail)
        if b"grpc-status" not in pairs:
            return Ended(wire.status_of_reset(self.stream.error_code))
        return Ended(
            int(pairs[b"grpc-status"]),
            wire.decode_message(pairs.get(b"grpc-message", b"")),
            wire.decode_metadata(head),
            wire.decode_metadata(tail),
        )


async def _read_to_end(dialogue: Dialogue) -> Ended:
    while await dialogue.read() is not None:
        pass
    return await dialogue.end()


class NativeChannel:
    """The native transport's."""

    def __init__(self, target: str, authority: str, *, is_packing: bool) -> None:
        tls = open_tls(TlsSettings(ca_file=Path(authority)), "interop") if authority else NO_TLS
        self._peer = connect(
            target, max_message_bytes=LIMIT_BYTES, tls=tls, compression="gzip" if is_packing else "none"
        )
        self._scheme = b"https" if authority else b"http"
        self._target = target
        self._is_packing = is_packing

    async def unary(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """See Channel.unary."""
        return await self._peer.unary(method, request, timeout_s=timeout_s)

    async def collect(self, method: str, request: bytes, timeout_s: float) -> list[bytes]:
        """See Channel.collect."""
        found: list[bytes] = []
        await self._peer.stream(method, request, found.append, timeout_s=timeout_s)
        return found

    async def ask(self, method: str, message: bytes, timeout_s: float, metadata: Metadata | None = None) -> Ended:
        """See Channel.ask."""
        dialogue = await self.dialogue(method, timeout_s, metadata)
        await dialogue.write(message)
        await dialogue.finish()
        return await _read_to_end(dialogue)

    async def dialogue(self, method: str, timeout_s: float, metadata: Metadata | None = None) -> NativeDialogue:
        """See Channel.dialogue."""
        connection = self._peer._pick() or await self._peer._join_within(60)
        dialogue = NativeDialogue(timeout_s)
        beginning = wire.begin_request(self._scheme, self._target.encode(), method, is_packing=self._is_packing)
        headers = wire.request_headers(beginning, timeout_s, metadata or {})
        dialogue.stream = connection.open(headers, dialogue.news)
        return dialogue

    async def close(self) -> None:
        """See Channel.close."""
        await self._peer.close()


class _StockDialogue:
    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, message: bytes) -> None:
        # The end says it.
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            await self._call.write(message)

    async def finish(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            await self._call.done_writing()

    async def read(self) -> bytes | None:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError:
            return None
        return None if message is grpc.aio.EOF else message

    def cancel(self) -> None:
        self._call.cancel()

    async def end(self) -> Ended:
        code = await self._call.code()
        if code is grpc.StatusCode.CANCELLED:
            return Ended(code.value[0])
        initial, trailing = await self._call.initial_metadata(), await self._call.trailing_metadata()
        return Ended(code.value[0], await self._call.details() or "", dict(initial or ()), dict(trailing or ()))


class StockChannel:
    """grpcio's."""

    def __init__(self, target: str, authority: str, *, is_packing: bool) -> None:
        packing = grpc.Compression.Gzip if is_packing else grpc.Compression.NoCompression
        if authority:
            credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
            self._channel: Any = grpc.aio.secure_channel(target, credentials, compression=packing)
        else:
            self._channel = grpc.aio.insecure_channel(target, compression=packing)

    async def unary(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """See Channel.unary."""
        found: bytes = await self._channel.unary_unary(method)(request, timeout=timeout_s)
        return found

    async def collect(self, method: str, request: bytes, timeout_s: float) -> list[bytes]:
        """See Channel.collect."""
        return [message async for message in self._channel.unary_stream(method)(request, timeout=timeout_s)]

    async def ask(self, method: str, message: bytes, timeout_s: float, metadata: Metadata | None = None) -> Ended:
        """See Channel.ask."""
        pairs = tuple((metadata or {}).items())
        # A write of its own would say INTERNAL where the server has ended the call before it.
        call = self._channel.unary_stream(method)(message, timeout=timeout_s, metadata=pairs)
        return await _read_to_end(_StockDialogue(call))

    async def dialogue(self, method: str, timeout_s: float, metadata: Metadata | None = None) -> Dialogue:
        """See Channel.dialogue."""
        pairs = tuple((metadata or {}).items())
        return _StockDialogue(self._channel.stream_stream(method)(timeout=timeout_s, metadata=pairs))

    async def close(self) -> None:
        """See Channel.close."""
        await self._channel.close()


def open_channel(kind: str, target: str, authority: str, *, is_packing: bool = False) -> Channel:
    """A channel of `native` or `grpcio`; `is_packing`: what it sends is in gzip."""
    found = NativeChannel if kind == "native" else StockChannel
    return found(target, authority, is_packing=is_packing)
