"""Native connections without sockets: what comes is given, what goes is kept, and every fault of ours is found."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from helpers.raw_http2 import DATA, GOAWAY, PREFACE, RST_STREAM
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import server_starter
from ssop_transport import wire
from ssop_transport._connection import WINDOW_BYTES, Connection
from ssop_transport._stream import Stream
from ssop_transport.calling import judge

LIMIT_BYTES: Final = 100_000
READ_AHEAD_BYTES: Final = 32_768
_SETTLE_TURNS: Final = 400
"""Turns of the loop after which nothing that has been cancelled runs any more."""


class MemoryTransport:
    """Takes what a connection writes."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_closed = self.is_deaf = False

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self.sent += data

    def close(self) -> None:
        """See asyncio.Transport."""
        self.is_closed = True

    def abort(self) -> None:
        """See asyncio.Transport."""
        self.is_closed = True

    def pause_reading(self) -> None:
        """See asyncio.Transport."""
        self.is_deaf = True

    def resume_reading(self) -> None:
        """See asyncio.Transport."""
        self.is_deaf = False

    def get_extra_info(self, _: str) -> Any:
        """See asyncio.Transport."""
        return None


def frames_of(sent: bytes | bytearray) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame. Raises AssertionError where the bytes are not whole frames."""
    sent = bytes(sent).removeprefix(PREFACE)
    found, at = [], 0
    while at < len(sent):
        length = int.from_bytes(sent[at : at + 3], "big")
        assert at + 9 + length <= len(sent), "a frame that is not whole was sent"
        stream_id = int.from_bytes(sent[at + 5 : at + 9], "big")
        assert stream_id < 2**31
        found.append((sent[at + 3], sent[at + 4], stream_id, bytes(sent[at + 9 : at + 9 + length])))
        at += 9 + length
    return found


def behaviour_of(sent: bytes | bytearray) -> frozenset[tuple[int, int]]:
    """The kinds of frames that were sent; of those that end something with their codes."""
    return frozenset(
        (kind, int.from_bytes(payload[-4:] if kind == RST_STREAM else payload[4:8], "big"))
        if kind in {RST_STREAM, GOAWAY}
        else (kind, flags)
        for kind, flags, _, payload in frames_of(sent)
    )


async def _echo(call: Call) -> None:
    await call.write(call.request)


async def _count(call: Call) -> None:
    for _ in range(200):
        await call.write(call.request[:2_000])


async def _mirror(call: Call) -> None:
    while (message := await call.read()) is not None:
        await call.write(message)


async def _fail(_: Call) -> None:
    raise MeshError(1, "on purpose", fields=[("a", "b")])  # type: ignore[arg-type]


async def _hang(_: Call) -> None:
    await asyncio.Event().wait()


SERVICE: Final = Service(
    "test.T",
    [
        Method(f"/test.T/{name}", arity, handler, needs_principal=False)
        for name, arity, handler in (
            ("Echo", Arity.UNARY, _echo),
            ("Count", Arity.SERVER_STREAM, _count),
            ("Mirror", Arity.BIDI, _mirror),
            ("Fail", Arity.UNARY, _fail),
            ("Hang", Arity.BIDI, _hang),
        )
    ],
)


class _Faults(logging.Handler):
    """Notes what is logged as an error: on input from outside there is none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self.found.append(self.format(record))


@contextmanager
def without_faults() -> Iterator[None]:
    """Raises AssertionError for what was logged as an error meanwhile."""
    faults = _Faults()
    logging.getLogger().addHandler(faults)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(faults)
    assert not faults.found, faults.found[0]


async def open_server(**options: Any) -> Any:
    """A server that listens nowhere."""
    return await server_starter("native", "test")(
        [SERVICE], [], authenticate=inner_authenticate(bytes(32)), max_message_bytes=LIMIT_BYTES, **options
    )


async def feed_server(server: Any, pieces: Iterable[bytes]) -> MemoryTransport:
    """Give a new connection of the server what a client sends, then lose it; nothing of it is left."""
    transport = MemoryTransport()
    connection = server._connect()
    connection.connection_made(transport)
    given_bytes = 0
    for piece in pieces:
        if transport.is_closed:
            break
        connection.data_received(piece)
        given_bytes += len(piece)
        await asyncio.sleep(0)
    for _ in range(4):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    for _ in range(_SETTLE_TURNS):
        if not server._tasks:
            break
        await asyncio.sleep(0)
    assert not server._tasks, "a call outlived its connection"
    assert not server._connections
    assert not connection.stream_count
    # An answer to each call, an acknowledgement of each frame, and what the windows let pass.
    assert len(transport.sent) <= 400_000 + 60 * given_bytes
    return transport


async def feed_passive(pieces: Iterable[bytes]) -> list[Any]:
    """What the streams of a server hold that answers nothing and takes nothing, until all has come."""
    streams: list[Stream] = []

    def hear(_: Connection, stream: Stream) -> None:
        stream.listener = _nothing
        streams.append(stream)

    transport = MemoryTransport()
    connection = Connection(asyncio.get_running_loop(), on_stream=hear, max_message_bytes=LIMIT_BYTES)
    connection.connection_made(transport)  # type: ignore[arg-type]
    for piece in pieces:
        if transport.is_closed:
            break
        connection.data_received(piece)
    connection.connection_lost(None)
    is_ended = any(kind == GOAWAY for kind, _, _, _ in frames_of(transport.sent)) or transport.is_closed
    return [is_ended, *[(stream.id, *_heads(stream), *_drained(stream)) for stream in streams]]


def _heads(stream: Stream) -> tuple[Any, ...]:
    """What it began with."""
    return stream.head and stream.head.pairs, stream.timeout, stream.request_id


def _drained(stream: Stream) -> tuple[Any, ...]:
    """Its messages and its end. What it held is bounded by what a client may send."""
    messages: list[bytes] = []
    while (message := stream.take()) is not None:
        messages.append(message)
    head = stream.head.pairs if stream.head else []
    if not stream.failure and not any(name == b"grpc-encoding" for name, _ in head):
        assert sum(map(len, messages)) <= WINDOW_BYTES + READ_AHEAD_BYTES
    return messages, stream.tail and stream.tail.pairs, stream.is_ended, stream.failure


def _nothing() -> None:
    """A listener that does not care."""


async def feed_client(pieces: Iterable[bytes]) -> MemoryTransport:
    """Give three calls of a client what a server sends, then lose it; each ends well or with a MeshError."""
    transport = MemoryTransport()
    connection = Connection(asyncio.get_running_loop(), max_message_bytes=LIMIT_BYTES)
    connection.connection_made(transport)  # type: ignore[arg-type]
    streams = []
    for _ in range(3):
        stream = connection.open(
            wire.request_headers(wire.begin_request(b"http", b"test", "/test.T/Echo"), 5, {}), _nothing
        )
        stream.write(b"request")
        stream.finish()
        streams.append(stream)
    await asyncio.sleep(0)
    for piece in pieces:
        if transport.is_closed:
            break
        connection.data_received(piece)
        for stream in streams:
            stream.take()
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert not connection.stream_count
    for stream in streams:
        while stream.take() is not None:
            pass
        assert stream.is_closed
        with suppress(MeshError):
            judge(stream)
    return transport


async def check(role: str, data: bytes, pieces: list[bytes], server: Any) -> frozenset[tuple[int, int]]:
    """Hold all that has to hold of one input; returns what was sent in answer. Raises AssertionError."""
    if role == "client":
        return behaviour_of((await feed_client(pieces)).sent)
    found = behaviour_of((await feed_server(server, pieces)).sent)
    at_once, in_pieces = await feed_passive([data]), await feed_passive(pieces)
    if not at_once[0] and not in_pieces[0]:
        assert at_once == in_pieces, "what is heard depends on how it was cut"
    return found | {(DATA, 1 << 16 | len(at_once))}
