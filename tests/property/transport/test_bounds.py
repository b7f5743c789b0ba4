"""What the native server holds for clients that do not read, or do not stop: never more than is documented."""

import asyncio
import itertools
import struct
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memory_wire import MemoryTransport, frames_of, open_server
from helpers.raw_http2 import (
    CALL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    call,
    frame,
    message,
)
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import server_starter

pytestmark = pytest.mark.needs("native_transport")
WINDOW_BYTES: Final = 65_535
WRITE_AHEAD_BYTES: Final = 32_768
ENHANCE_YOUR_CALM: Final = 11
INITIAL_WINDOW_SIZE: Final = 4
BEGINNING: Final = PREFACE + frame(SETTINGS, 0, 0)


class Writer:
    """A handler that writes messages of given sizes, and notes what it got rid of."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self.written_bytes = 0

    async def write(self, call_: Call) -> None:
        """Write them all."""
        for size in self._sizes:
            self.written_bytes += size + 5
            await call_.write(bytes(size))


async def connect(server: Any) -> tuple[Any, MemoryTransport]:
    """A client's connection that has begun."""
    transport = MemoryTransport()
    connection = server._connect()
    connection.connection_made(transport)
    connection.data_received(BEGINNING)
    return connection, transport


def data_bytes(transport: MemoryTransport) -> int:
    """What was sent of messages."""
    return sum(len(payload) for kind, _, _, payload in frames_of(bytes(transport.sent)) if kind == DATA)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(30):
        await asyncio.sleep(0)


sizes = st.lists(
    st.one_of(st.integers(0, 2_000), st.sampled_from((16_384, 32_767, 32_768, 90_000))), min_size=1, max_size=60
)


@given(sizes, st.lists(st.integers(1, 50_000), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
async def test_slow_reader_is_owed_a_window_and_what_is_written_ahead(
    message_sizes: list[int], grants: list[int], is_socket_full: bool
) -> None:
    writer = Writer(message_sizes)
    service = Service("test.T", [Method("/test.T/M", Arity.SERVER_STREAM, writer.write, needs_principal=False)])
    server: Any = await server_starter("native", "test")([service], [], authenticate=inner_authenticate(bytes(32)))
    connection, transport = await connect(server)
    if is_socket_full:
        connection.pause_writing()
    connection.data_received(call(1) + message(1, b""))
    window_bytes = WINDOW_BYTES
    for grant in [0, *grants]:
        if grant:
            window_bytes += grant
            connection.data_received(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", grant)))
        await settle()
        sent = data_bytes(transport)
        assert sent <= window_bytes
        assert not is_socket_full or sent == 0
        # The last message that was let in may stand above the bound.
        assert writer.written_bytes - sent <= WRITE_AHEAD_BYTES + max(message_sizes) + 5
    connection.connection_lost(None)
    await server.stop(0)


@given(st.lists(st.integers(0, 16_000), min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
async def test_client_that_is_not_read_is_let_in_for_a_window(message_sizes: list[int]) -> None:
    server = await open_server()
    connection, transport = await connect(server)
    headers = [(name, b"/test.T/Hang" if name == b":path" else value) for name, value in CALL]
    connection.data_received(call(1, headers))
    for size in message_sizes:
        connection.data_received(message(1, bytes(size), is_last=False))
    credit = sum(
        int.from_bytes(payload, "big")
        for kind, _, stream_id, payload in frames_of(bytes(transport.sent))
        if kind == WINDOW_UPDATE and stream_id == 1
    )
    # What was given back is what came in before as much as may wait was there.
    assert credit <= WRITE_AHEAD_BYTES + 16_005
    connection.connection_lost(None)
    await settle()
    await server.stop(0)


async def flood(connection: Any, transport: MemoryTransport, parts: Any) -> int:
    """Send until the server hears no more; returns how many parts it took."""
    for count, part in enumerate(parts):
        connection.data_received(part)
        if transport.is_deaf or transport.is_closed:
            return count
        if not count % 50:
            await asyncio.sleep(0)
    raise AssertionError("the server heard all of it")


async def test_client_that_asks_and_never_reads_is_not_heard_any_more() -> None:
    server = await open_server()
    connection, transport = await connect(server)
    connection.pause_writing()
    headers = [(name, b"/test.T/No" if name == b":path" else value) for name, value in CALL]
    # It does not acknowledge the server's settings either, so that their limit does not bind it yet.
    count = await flood(connection, transport, (call(2 * n + 1, headers) for n in range(100_000)))
    assert count < 20_000
    assert len(transport.sent) < 1_000
    if transport.is_deaf:
        connection.resume_writing()
        assert not transport.is_deaf
        await settle()
        assert len(transport.sent) > 1_000
    connection.connection_lost(None)
    await settle()
    await server.stop(0)


async def test_block_of_headers_many_times_too_large_ends_the_connection() -> None:
    server = await open_server()
    connection, transport = await connect(server)
    part = block([(b"x-a", b"v" * 120)] * 100)
    blocks = itertools.chain(
        [frame(HEADERS, 0, 1, block(CALL))], itertools.repeat(frame(CONTINUATION, 0, 1, part), 1_000)
    )
    assert await flood(connection, transport, blocks) < 20
    assert any(kind == GOAWAY for kind, _, _, _ in frames_of(bytes(transport.sent)))
    connection.connection_lost(None)
    await server.stop(0)


async def test_table_of_headers_lets_no_small_block_become_a_large_one() -> None:
    server = await open_server()
    connection, transport = await connect(server)
    # One entry of 4,000 bytes is put into the table, then named thousands of times, a byte each.
    entry = b"\x40" + b"\x03x-a" + b"\x7f\xa1\x1e" + b"v" * 4_000
    connection.data_received(frame(HEADERS, END_HEADERS, 1, block(CALL) + entry + b"\xbe" * 12_000))
    await settle()
    codes = [payload[4:8] for kind, _, _, payload in frames_of(bytes(transport.sent)) if kind == GOAWAY]
    assert codes == [struct.pack("!I", ENHANCE_YOUR_CALM)]
    connection.connection_lost(None)
    await server.stop(0)


@given(st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
async def test_answer_is_whole_whatever_the_window(window_bytes: int, message_sizes: list[int]) -> None:
    server = await open_server()
    transport = MemoryTransport()
    connection = server._connect()
    connection.connection_made(transport)
    connection.data_received(PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", INITIAL_WINDOW_SIZE, window_bytes)))
    headers = [(name, b"/test.T/Mirror" if name == b":path" else value) for name, value in CALL]
    sent = b"".join(struct.pack("!BI", 0, size) + bytes(size) for size in message_sizes)
    connection.data_received(call(1, headers) + frame(DATA, END_STREAM, 1, sent))
    for _ in range(len(sent) // window_bytes + 1):
        await settle()
        connection.data_received(frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", window_bytes)))
    await settle()
    frames = [(flags, payload) for kind, flags, _, payload in frames_of(bytes(transport.sent)) if kind == DATA]
    assert b"".join(payload for _, payload in frames) == sent
    # An empty frame costs the peer nothing and us a turn: none but the last.
    assert all(payload for _, payload in frames[:-1])
    connection.connection_lost(None)
    await server.stop(0)
