"""What a stranger may hold of a server, and for how long: connections, streams, bytes. No sockets, no clocks."""

import asyncio
import gc
import struct
import weakref
from typing import Any

import pytest

from helpers.damaged_wire import PRIORITY
from helpers.memory_wire import LIMIT_BYTES, SERVICE, MemoryTransport, frames_of, open_server
from helpers.raw_http2 import (
    ACK,
    CALL,
    DATA,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    frame,
    message,
)
from ssop_chassis.call import Arity, Call
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import server_starter
from ssop_transport import compression
from ssop_transport.wire import REFUSED_STREAM
from unit.chassis.transports import one_method

pytestmark = pytest.mark.needs("native_transport")
GREETING = PREFACE + frame(SETTINGS, 0, 0)
CLOSED_WINDOWS = (
    PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + bytes(4)) + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 1 << 24))
)
ENHANCE_YOUR_CALM = 11
FOR_EVER = [(b"grpc-timeout", b"99999999H")]


def path(name: bytes, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [*((n, b"/test.T/" + name if n == b":path" else v) for n, v in CALL), *more]


class Client:
    """One connection to a server that listens nowhere."""

    def __init__(self, server: Any, first: bytes = GREETING, transport: MemoryTransport | None = None) -> None:
        self.transport = transport or MemoryTransport()
        self.connection = server._connect()
        self.connection.connection_made(self.transport)
        self.send(first)

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.connection.data_received(part)

    def frames(self, kind: int, stream_id: int) -> list[bytes]:
        return [payload for k, _, s, payload in frames_of(self.transport.sent) if (k, s) == (kind, stream_id)]

    def lose(self) -> None:
        self.connection.connection_lost(None)


async def settle(turns: int = 30) -> None:
    """Let the tasks of a server run; they wait for nothing but turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def end(server: Any, *clients: Client) -> None:
    """Nothing of the clients is left."""
    for client in clients:
        client.lose()
    await settle()
    assert not server._connections
    assert not server._tasks
    assert not server._gatherings
    assert server._room.held_bytes == 0


async def test_client_that_never_begins_is_hung_up_on() -> None:
    server = await open_server()
    client = Client(server, PREFACE[:5])
    for _ in range(9):
        client.connection.look()
    assert not client.transport.is_closed
    client.connection.look()
    assert client.transport.is_closed
    await end(server, client)


async def test_client_that_has_begun_may_be_silent() -> None:
    server = await open_server()
    client = Client(server)
    for _ in range(1_000):
        client.connection.look()
    assert not client.transport.is_closed
    await end(server, client)


async def test_answer_that_nobody_takes_is_given_up() -> None:
    server = await open_server()
    client = Client(server, CLOSED_WINDOWS)
    client.send(call(1, path(b"Echo")) + message(1, bytes(1_000)))
    await settle()
    assert client.connection.stream_count == 1
    for _ in range(61):
        client.connection.look()
    await settle()
    assert client.frames(RST_STREAM, 1)
    assert client.connection.stream_count == 0
    await end(server, client)


async def test_answer_that_is_taken_slowly_is_sent_whole() -> None:
    server = await open_server()
    client = Client(server, CLOSED_WINDOWS)
    client.send(call(1, path(b"Echo")) + message(1, b"slow"))
    await settle()
    for _ in range(9):
        for _ in range(50):
            client.connection.look()
        client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 1)))
        await settle()
    assert b"".join(client.frames(DATA, 1)) == b"\0\0\0\0\4slow"
    assert not client.frames(RST_STREAM, 1)
    await end(server, client)


async def test_client_that_reads_nothing_is_hung_up_on() -> None:
    server = await open_server()
    client = Client(server)
    client.connection.pause_writing()
    for _ in range(60):
        client.connection.look()
    assert client.transport.is_closed
    await end(server, client)


class Lingering(MemoryTransport):
    """Closes for ever, since its peer does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def test_close_that_does_not_end_is_cut() -> None:
    server = await open_server()
    transport = Lingering()
    client = Client(server, PREFACE + frame(DATA, 0, 0, b"no settings"), transport)
    assert transport.is_closed
    for _ in range(60):
        client.connection.look()
    assert transport.is_aborted
    await end(server, client)


async def test_what_comes_after_a_fault_is_not_read() -> None:
    server = await open_server()
    client = Client(server, b"GET / HTTP/1.1\r\n\r\n" + bytes(20))
    sent_bytes = len(client.transport.sent)
    client.send(GREETING + call(1, path(b"Echo")) + message(1, b""))
    await settle()
    assert client.connection.begun_count == 0
    assert len(client.transport.sent) == sent_bytes
    await end(server, client)


async def test_request_may_not_gather_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_transport.gathering.GATHER_S", 0.0)
    server = await open_server()
    client = Client(server)
    client.send(call(1, path(b"Echo", *FOR_EVER)) + message(1, b"half", is_last=False))
    while not client.frames(HEADERS, 1):
        await asyncio.sleep(0.001)
    await settle()
    assert client.connection.stream_count == 0
    await end(server, client)


async def test_second_message_of_a_request_is_refused_before_its_end() -> None:
    server = await open_server()
    client = Client(server)
    client.send(call(1, path(b"Echo")), message(1, b"a", is_last=False), message(1, b"b", is_last=False))
    await settle()
    assert client.frames(HEADERS, 1)
    assert client.connection.stream_count == 0
    await end(server, client)


async def test_requests_that_gather_are_bounded_over_all_connections() -> None:
    server = await open_server(max_concurrent_calls=2)
    clients = [Client(server) for _ in range(5)]
    for client in clients:
        client.send(call(1, path(b"Echo")) + call(3, path(b"Echo")))
    assert [len(client.frames(HEADERS, 1) + client.frames(HEADERS, 3)) for client in clients] == [0, 0, 0, 0, 2]
    # Whoever sends its request whole is not concerned.
    clients[4].send(call(5, path(b"Echo")) + message(5, b"whole"))
    await settle()
    assert clients[4].frames(DATA, 5) == [b"\0\0\0\0\5whole"]
    await end(server, *clients)


def large(stream_id: int, sent_bytes: int) -> list[bytes]:
    """A call whose message is announced as large as allowed, and comes in part."""
    payload = struct.pack("!BI", 0, LIMIT_BYTES) + bytes(sent_bytes)
    parts = [payload[at : at + 16_384] for at in range(0, len(payload), 16_384)]
    return [call(stream_id, path(b"Echo")), *(frame(DATA, 0, stream_id, part) for part in parts)]


async def test_bytes_of_large_requests_are_bounded_over_all_connections() -> None:
    server = await open_server()
    clients = [Client(server) for _ in range(3)]
    for number in range(36):
        clients[number % 3].send(*large(1 + 2 * (number // 3), LIMIT_BYTES - 10))
    assert server._room.held_bytes <= 32 * LIMIT_BYTES
    refused = [sum(bool(client.frames(HEADERS, n)) for n in range(1, 25, 2)) for client in clients]
    assert sum(refused) == 4
    # What fits a window is taken all the same.
    clients[0].send(call(51, path(b"Echo")) + message(51, bytes(10_000)))
    await settle()
    assert len(b"".join(clients[0].frames(DATA, 51))) == 10_005
    await end(server, *clients)


async def test_large_requests_leave_their_room_when_they_are_taken() -> None:
    server = await open_server()
    client = Client(server)
    for number in range(40):
        stream_id = 1 + 2 * number
        parts = large(stream_id, LIMIT_BYTES)
        client.send(*parts[:-1], parts[-1][:4] + b"\1" + parts[-1][5:])
        await settle()
    assert server._room.held_bytes == 0
    assert all(not client.frames(RST_STREAM, stream_id) for stream_id in range(1, 81, 2))
    await end(server, client)


async def test_announced_message_costs_nothing_until_it_comes() -> None:
    tracing = pytest.importorskip("tracemalloc")
    server = await server_starter("native", "test")(
        [SERVICE], [], authenticate=inner_authenticate(bytes(32)), max_message_bytes=1 << 26
    )
    client = Client(server)
    tracing.start()
    for number in range(16):
        stream_id = 1 + 2 * number
        client.send(call(stream_id, path(b"Echo")) + frame(DATA, 0, stream_id, struct.pack("!BI", 0, 1 << 26)))
    held_bytes, _ = tracing.get_traced_memory()
    tracing.stop()
    assert held_bytes < 1 << 22
    await end(server, client)


@pytest.mark.parametrize("kind", ["priorities", "resets that it is made to send"])
async def test_flood_of_what_costs_nothing_is_ended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await open_server()
    client = Client(server)
    with monkeypatch.context() as stopped:
        # What is allowed in a second is counted on the loop's clock.
        stopped.setattr(asyncio.get_running_loop(), "time", lambda: 1_000_000.0)
        for number in range(10_100):
            stream_id = 1 + 2 * number
            if kind == "priorities":
                client.send(frame(PRIORITY, 0, 1, struct.pack("!IB", 0, 16)))
            else:
                # Its window is overflowed, which breaks the stream and not the connection.
                update = struct.pack("!I", 2**31 - 1)
                client.send(call(stream_id, path(b"Hang")) + frame(WINDOW_UPDATE, 0, stream_id, update))
            if client.transport.is_closed:
                break
    assert [int.from_bytes(payload[4:8], "big") for payload in client.frames(GOAWAY, 0)] == [ENHANCE_YOUR_CALM]
    await settle(400)
    await end(server, client)


async def test_nothing_is_sent_from_inside_of_a_read() -> None:
    server = await open_server()
    client = Client(server)
    data = b"".join(call(1 + 2 * number, path(b"Echo")) for number in range(200))
    sent_bytes: list[int] = []

    def collect(phase: str, _: dict[str, int]) -> None:
        """What a finaliser may do: it runs wherever something is made, here where a stream is."""
        if phase == "start":
            before = len(client.transport.sent)
            client.connection.announce_drain()
            sent_bytes.append(len(client.transport.sent) - before)

    before = gc.get_threshold()
    gc.callbacks.append(collect)
    gc.set_threshold(1)
    try:
        client.connection.data_received(data)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collect)
    assert sent_bytes[0] == 0
    assert client.frames(GOAWAY, 0)
    await settle()
    await end(server, client)


async def start(arity: Arity, handler: Any, *, needs_principal: bool = False) -> Any:
    service = one_method(arity, handler, needs_principal=needs_principal)
    return await server_starter("native", "test")([service], [], authenticate=inner_authenticate(bytes(32)))


async def test_session_may_read_while_its_writer_waits_for_room() -> None:
    heard: list[bytes] = []

    async def both(session: Call) -> None:
        async def write() -> None:
            for _ in range(10):
                await session.write(bytes(10_000))

        writing = asyncio.ensure_future(write())
        while (found := await session.read()) is not None:
            heard.append(found)
        await writing

    server = await start(Arity.BIDI, both)
    client = Client(server, CLOSED_WINDOWS)
    client.send(call(1))
    await settle()
    # The writer waits, and the reader does; each is woken.
    client.send(message(1, b"one", is_last=False))
    await settle()
    assert heard == [b"one"]
    client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 60_000)))
    await settle()
    client.send(message(1, b"two"), frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 60_000)))
    await settle()
    assert heard == [b"one", b"two"]
    assert len(b"".join(client.frames(DATA, 1))) == 100_050
    await end(server, client)


async def test_writers_of_a_session_that_wait_for_room_are_all_woken() -> None:
    written: list[int] = []

    async def many(session: Call) -> None:
        async def write(number: int) -> None:
            await session.write(bytes(40_000))
            written.append(number)

        await asyncio.gather(*map(write, range(3)))

    server = await start(Arity.BIDI, many)
    client = Client(server, CLOSED_WINDOWS)
    client.send(call(1))
    await settle()
    assert written == []
    for _ in range(10):
        client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 16_000)))
        await settle()
    assert sorted(written) == [0, 1, 2]
    await end(server, client)


async def test_trailers_that_are_too_large_to_be_sent_end_the_call() -> None:
    async def boast(call_: Call) -> None:
        call_.set_trailing_metadata({"x-large": "v" * 70_000})
        await call_.write(b"")

    server = await start(Arity.UNARY, boast)
    client = Client(server)
    client.send(call(1) + message(1, b""))
    await settle()
    assert client.frames(RST_STREAM, 1)
    assert client.connection.stream_count == 0
    await end(server, client)


async def test_reflection_leaves_room_for_calls() -> None:
    server = await open_server(has_reflection=True)
    client = Client(server)
    reflect = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    headers = [(n, reflect if n == b":path" else v) for n, v in CALL]
    for number in range(20):
        client.send(call(1 + 2 * number, headers))
    await settle()
    assert sum(bool(client.frames(HEADERS, 1 + 2 * number)) for number in range(20)) == 4
    client.send(call(41, path(b"Echo")) + message(41, b"served"))
    await settle()
    assert client.frames(DATA, 41)
    await end(server, client)


async def test_connections_are_bounded_and_the_longest_silent_one_makes_place() -> None:
    server = await open_server()
    server._most_connections = 3
    clients = [Client(server) for _ in range(3)]
    clients[0].send(call(1, path(b"Hang")))
    await settle()
    # Two are idle; the one that was heard first goes.
    clients[1].send(frame(SETTINGS, ACK, 0))
    late = Client(server)
    assert [client.transport.is_closed for client in (*clients, late)] == [False, False, True, False]
    clients[2].lose()
    await end(server, *clients[:2], late)


async def test_connection_for_which_there_is_no_place_is_dropped() -> None:
    server = await open_server()
    server._most_connections = 2
    clients = [Client(server) for _ in range(2)]
    for client in clients:
        client.send(call(1, path(b"Hang")))
    late = Client(server)
    assert late.transport.is_closed
    assert not any(client.transport.is_closed for client in clients)
    late.lose()
    await end(server, *clients)


async def test_message_is_unpacked_for_those_alone_who_prove_who_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []

    def note(encoding: bytes, packed: bytes, most_bytes: int) -> bytes:
        unpacked.append(len(packed))
        return compression.unpack(encoding, packed, most_bytes)

    async def echo(call_: Call) -> None:
        await call_.write(call_.request)

    monkeypatch.setattr("ssop_transport._stream.unpack", note)
    server = await start(Arity.UNARY, echo, needs_principal=True)
    client = Client(server)
    bomb = compression.pack(bytes(1_000_000))
    client.send(call(1, [*CALL, (b"grpc-encoding", b"gzip")]) + message(1, bomb, flag=1))
    await settle()
    assert client.connection.stream_count == 0
    assert client.frames(HEADERS, 1)
    assert unpacked == []
    await end(server, client)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["client", "server"])
async def test_call_that_ends_before_its_first_turn_is_not_served(is_stopped: bool) -> None:
    served: list[Call] = []

    async def serve(call: Call) -> None:
        served.append(call)

    server = await start(Arity.UNARY, serve)
    client = Client(server)
    client.send(call(1, path(b"M")) + message(1, b"question"))
    assert len(server._tasks) == 1
    if is_stopped:
        await server.stop(0)
    else:
        client.send(frame(RST_STREAM, 0, 1, struct.pack("!I", 8)))
    await end(server, client)
    assert not served


async def test_client_is_told_that_a_server_which_stops_never_looked_at_its_call() -> None:
    async def serve(call: Call) -> None:
        await call.write(b"answer")

    server = await start(Arity.UNARY, serve)
    client = Client(server)
    client.send(call(1, path(b"M")) + message(1, b"question"))
    await server.stop(0)
    assert client.frames(RST_STREAM, 1) == [struct.pack("!I", REFUSED_STREAM)]
    await end(server, client)


@pytest.mark.parametrize("has_begun", [False, True], ids=["new", "running"])
async def test_call_whose_client_went_leaves_nothing_to_the_collector(has_begun: bool) -> None:
    begun = asyncio.Event()

    async def serve(_: Call) -> None:
        begun.set()
        await asyncio.Event().wait()

    server = await start(Arity.UNARY, serve)
    client = Client(server)
    gc.disable()
    try:
        client.send(call(1, path(b"M")) + message(1, b"question"))
        gone = weakref.ref(next(iter(server._tasks)))
        if has_begun:
            await begun.wait()
        client.send(frame(RST_STREAM, 0, 1, struct.pack("!I", 8)))
        await settle()
        assert gone() is None
    finally:
        gc.enable()
    await end(server, client)
