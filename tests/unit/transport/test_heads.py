"""What calls with the same headers share on a connection, and what they don't."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from helpers.memory_wire import MemoryTransport, frames_of
from helpers.raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, block, call, frame, message
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import server_starter
from ssop_transport import wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream
from ssop_transport.calling import judge

pytestmark = pytest.mark.needs("native_transport")

TURNS = 50
REMEMBERED_BYTES = 100_000
METHOD = "/test.T/Tell"


async def tell(call: Call) -> None:
    """Write what came with the call, and how long it may take, in hundreds of seconds."""
    known = {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in call.metadata.items()
        if key != "user-agent"
    }
    await call.write(json.dumps([known, round(call.remaining_s() / 100)]).encode())


async def tell_and_fail(call: Call) -> None:
    """Write, and think better of it."""
    await tell(call)
    raise MeshError(1, "on second thoughts")  # type: ignore[arg-type]


class NotingTransport(MemoryTransport):
    """Notes the kinds of frames of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[int]] = []

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self.writes.append([kind for kind, *_ in frames_of(data)])
        super().write(data)


class Wire:
    """A client and a server that hand each other their bytes."""

    def __init__(self, server: Any) -> None:
        self.to_server, self.to_client = MemoryTransport(), NotingTransport()
        self.client = Connection(asyncio.get_running_loop())
        self.server = server._connect()
        self.client.connection_made(self.to_server)  # type: ignore[arg-type]
        self.server.connection_made(self.to_client)

    def exchange(self) -> None:
        """Hand over what was sent."""
        for transport, connection in ((self.to_server, self.server), (self.to_client, self.client)):
            sent, transport.sent = bytes(transport.sent), bytearray()
            if sent:
                connection.data_received(sent)

    def open(self, metadata: dict[str, str | bytes], *more: tuple[bytes, bytes], timeout_s: float = 3_000) -> Stream:
        """Begin a call."""
        headers = wire.request_headers(wire.begin_request(b"http", b"test", METHOD), timeout_s, metadata)
        return self.client.open([*headers, *more], lambda: None, b"request")

    async def end(self, *streams: Stream) -> list[Any]:
        """What the handler was told, by call."""
        for _ in range(TURNS):
            self.exchange()
            await asyncio.sleep(0)
        found = []
        for stream in streams:
            judge(stream)
            message = stream.take()
            assert message is not None
            found.append(json.loads(message))
        return found

    async def ask(self, metadata: dict[str, str | bytes], *more: tuple[bytes, bytes], timeout_s: float = 3_000) -> Any:
        """One call, alone."""
        return (await self.end(self.open(metadata, *more, timeout_s=timeout_s)))[0]


@asynccontextmanager
async def serving(handler: Callable[[Call], Awaitable[None]] = tell) -> Any:
    """A server with one method, and one client of it."""
    service = Service("test.T", [Method(METHOD, Arity.UNARY, handler, needs_principal=False)])
    server: Any = await server_starter("native", "test")([service], [], authenticate=inner_authenticate(bytes(32)))
    both = Wire(server)
    both.exchange()
    yield both
    both.server.connection_lost(None)
    both.client.connection_lost(None)
    await server.stop(0)


async def test_same_headers_mean_the_same_again() -> None:
    async with serving() as both:
        token = {"x-ssop-principal-bin": b"\1\2", "x-a": "b"}
        first, second = await both.ask(token), await both.ask(token)
    assert first == second == [{"x-ssop-principal-bin": "0102", "x-a": "b"}, 30]


async def test_callers_who_take_turns_are_told_apart() -> None:
    async with serving() as both:
        found = [(await both.ask({"x-tenant": f"t{number % 3}"}))[0] for number in range(9)]
    assert found == [{"x-tenant": f"t{number % 3}"} for number in range(9)]


async def test_deadline_and_request_id_are_of_each_call() -> None:
    async with serving() as both:
        first = await both.ask({"x-a": "b", "x-ssop-request-id": "r-1"}, timeout_s=2_000)
        second = await both.ask({"x-a": "b", "x-ssop-request-id": "r-2"}, timeout_s=4_000)
        assert (first, second) == (
            [{"x-a": "b", "x-ssop-request-id": "r-1"}, 20],
            [{"x-a": "b", "x-ssop-request-id": "r-2"}, 40],
        )
        # One that says neither gets nothing of those before it.
        assert (await both.ask({"x-a": "b"}))[0] == {"x-a": "b"}


@pytest.mark.parametrize("name", [b"grpc-timeout", b"x-ssop-request-id"])
async def test_names_of_what_is_of_each_call_are_spelt_once(name: bytes) -> None:
    spelt = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(name)
    async with serving() as both:
        found = []
        for number in range(3):
            stream = both.open({"x-ssop-request-id": f"r-{number}"})
            found += [spelt in payload for kind, *_, payload in frames_of(both.to_server.sent) if kind == HEADERS]
            await both.end(stream)
    assert found == [True, False, False]


async def test_two_request_ids_are_joined() -> None:
    async with serving() as both:
        found = await both.ask({"x-ssop-request-id": "r-1"}, (b"x-ssop-request-id", b"r-2"))
    assert found[0] == {"x-ssop-request-id": "r-1, r-2"}


async def test_names_and_values_are_not_confused_by_where_they_part() -> None:
    async with serving() as both:
        found = [(await both.ask(dict([pair])))[0] for pair in (("x-ab", "c"), ("x-a", "bc"), ("x-a", "b"))]
    assert found == [{"x-ab": "c"}, {"x-a": "bc"}, {"x-a": "b"}]


def _many(count: int) -> Iterator[dict[str, str | bytes]]:
    for number in range(count):
        yield {"x-a": f"{number} " + "v" * 2_000}


async def test_connection_that_never_says_the_same_is_served_right() -> None:
    # Of 2 KB each: what is remembered is thrown away several times over.
    async with serving() as both:
        for metadata in _many(60):
            assert (await both.ask(metadata))[0] == metadata
        assert (await both.ask({"x-a": "b"}))[0] == {"x-a": "b"}


async def test_small_trailers_of_a_stranger_are_not_remembered_without_end() -> None:
    async with serving() as both:
        stranger: Any = both.server
        both.exchange()
        tracemalloc.start()
        try:
            for number in range(3_000):
                opened = call(2 * number + 1) + message(2 * number + 1, b"", is_last=False)
                end = frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, block([(b"a", b"%d" % number)]))
                stranger.data_received(opened + end)
                await asyncio.sleep(0)
                both.to_client.sent.clear()
            both.to_client.writes.clear()
            gc.collect()
            kept_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert kept_bytes < REMEMBERED_BYTES


async def test_calls_at_the_same_time_share_what_they_say() -> None:
    async with serving() as both:
        streams = [both.open({"x-a": "b", "x-ssop-request-id": f"r-{number}"}) for number in range(20)]
        found = await both.end(*streams)
    assert [told["x-ssop-request-id"] for told, _ in found] == [f"r-{number}" for number in range(20)]


async def test_lone_call_is_answered_in_one_write() -> None:
    async with serving() as both:
        await both.ask({})
    assert [HEADERS, DATA, HEADERS] in both.to_client.writes


async def test_message_of_a_handler_that_fails_after_it_is_not_sent() -> None:
    async with serving(tell_and_fail) as both:
        stream = both.open({})
        with pytest.raises(MeshError, match="second thoughts"):
            await both.end(stream)
        assert stream.take() is None


async def test_trailers_that_were_good_once_do_not_vouch_for_a_call_that_was_cut() -> None:
    async with serving() as both:
        await both.ask({})
        stream = both.open({})
        both.exchange()
        both.client.connection_lost(None)
        with pytest.raises(MeshError, match="reset"):
            judge(stream)
