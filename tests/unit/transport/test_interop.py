"""gRPC's interop cases against grpcio: as a server for its client, and as a client of its server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Method, Peer, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector, server_starter
from unit.chassis.transports import SECRET, echo, hang

pytestmark = pytest.mark.needs("native_transport")
LARGE_BYTES = 2_000_000


async def pong(call: Call) -> None:
    while (message := await call.read()) is not None:
        await call.write(message * 2)


async def count(call: Call) -> None:
    for number in range(int(call.request or b"0")):
        await call.write(b"%d" % number)


async def reflect(call: Call) -> None:
    await call.send_initial_metadata({"x-initial": str(call.metadata.get("x-initial", ""))})
    call.set_trailing_metadata({"x-trailing-bin": call.metadata.get("x-trailing-bin", b"")})
    await call.write(call.request)


async def fail(call: Call) -> None:
    raise MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "\t50 % 错误\n", retry_after_ms=7)


async def fail_late(call: Call) -> None:
    await call.write(b"first")
    await fail(call)


class Waiting:
    """A handler that notes what becomes of it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def wait(self, call: Call) -> None:
        self.events.append("begun")
        try:
            await call.write(b"first")
            await asyncio.Event().wait()
        finally:
            self.events.append("ended")


def service(waiting: Waiting) -> Service:
    kinds: dict[str, tuple[Arity, Any]] = {
        "Echo": (Arity.UNARY, echo),
        "Hang": (Arity.UNARY, hang),
        "Reflect": (Arity.UNARY, reflect),
        "Fail": (Arity.UNARY, fail),
        "Count": (Arity.SERVER_STREAM, count),
        "FailLate": (Arity.SERVER_STREAM, fail_late),
        "Wait": (Arity.SERVER_STREAM, waiting.wait),
        "Pong": (Arity.BIDI, pong),
    }
    methods = [Method(f"/test.T/{name}", arity, run, needs_principal=False) for name, (arity, run) in kinds.items()]
    return Service("test.T", methods)


class Grpcio:
    """The stock client on a native server."""

    def __init__(self, channel: Any, waiting: Waiting) -> None:
        self.channel = channel
        self.waiting = waiting

    def unary(self, name: str) -> Any:
        return self.channel.unary_unary(f"/test.T/{name}")

    def stream(self, name: str) -> Any:
        return self.channel.unary_stream(f"/test.T/{name}")


@pytest.fixture
async def stock(tmp_path: Path) -> AsyncIterator[Grpcio]:
    waiting = Waiting()
    listen = [f"unix:{tmp_path}/s"]
    server = await server_starter("native", "test")(
        [service(waiting)], listen, authenticate=inner_authenticate(SECRET), has_reflection=True
    )
    async with grpc.aio.insecure_channel(listen[0]) as channel:
        yield Grpcio(cast(Any, channel), waiting)
    await server.stop(0)


@asynccontextmanager
async def native_client(folder: Path) -> AsyncIterator[tuple[Peer, Waiting]]:
    """The native client on a stock server."""
    waiting = Waiting()
    listen = [f"unix:{folder}/s"]
    server = await server_starter("grpc", "test")([service(waiting)], listen, authenticate=inner_authenticate(SECRET))
    peer = connector("native")(listen[0])
    try:
        yield peer, waiting
    finally:
        await peer.close()
        await server.stop(0)


@contextmanager
def failing(code: grpc.StatusCode) -> Iterator[list[grpc.aio.AioRpcError]]:
    """The block fails with a status; the error is in the list afterwards."""
    found: list[grpc.aio.AioRpcError] = []
    with ExitStack() as stack:
        caught = stack.enter_context(pytest.raises(grpc.aio.AioRpcError))
        yield found
    assert caught.value.code() is code
    found.append(caught.value)


@pytest.mark.parametrize("size", [0, 1, 16_384, LARGE_BYTES], ids=["empty", "one byte", "a frame", "large"])
async def test_server_echoes_a_message(stock: Grpcio, size: int) -> None:
    assert await stock.unary("Echo")(b"x" * size, timeout=60) == b"x" * size


async def test_server_streams_in_order(stock: Grpcio) -> None:
    found = [message async for message in stock.stream("Count")(b"2000", timeout=60)]
    assert found == [b"%d" % number for number in range(2_000)]


async def test_server_streams_nothing(stock: Grpcio) -> None:
    assert [message async for message in stock.stream("Count")(b"0", timeout=60)] == []


async def test_server_answers_each_message_of_a_session(stock: Grpcio) -> None:
    call = stock.channel.stream_stream("/test.T/Pong")(timeout=60)
    for size in (1, 100, 100_000, 0):
        await call.write(b"y" * size)
        assert await call.read() == b"y" * size * 2
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_server_carries_metadata_of_both_kinds(stock: Grpcio) -> None:
    sent = (("x-initial", "a, b"), ("x-trailing-bin", b"\0\xff\1"))
    call = stock.unary("Reflect")(b"", metadata=sent, timeout=60)
    assert ("x-initial", "a, b") in tuple(await call.initial_metadata())
    assert ("x-trailing-bin", b"\0\xff\1") in tuple(await call.trailing_metadata())


async def test_server_sends_a_status_with_its_message_and_details(stock: Grpcio) -> None:
    with failing(grpc.StatusCode.RESOURCE_EXHAUSTED) as errors:
        await stock.unary("Fail")(b"", timeout=60)
    assert errors[0].details() == "\t50 % 错误\n"
    assert "grpc-status-details-bin" in dict(errors[0].trailing_metadata())


async def test_server_sends_a_status_after_messages(stock: Grpcio) -> None:
    call = stock.stream("FailLate")(b"", timeout=60)
    assert await call.read() == b"first"
    with failing(grpc.StatusCode.RESOURCE_EXHAUSTED):
        await call.read()


@pytest.mark.parametrize("path", ["/test.T/No", "/test.No/Echo"])
async def test_server_says_unimplemented(stock: Grpcio, path: str) -> None:
    with failing(grpc.StatusCode.UNIMPLEMENTED):
        await stock.channel.unary_unary(path)(b"", timeout=60)


async def test_server_ends_a_call_whose_time_is_up(stock: Grpcio) -> None:
    with failing(grpc.StatusCode.DEADLINE_EXCEEDED):
        await stock.unary("Hang")(b"", timeout=0.2)


async def test_server_cancels_the_handler_when_the_client_goes(stock: Grpcio) -> None:
    call = stock.stream("Wait")(b"", timeout=60)
    assert await call.read() == b"first"
    call.cancel()
    await eventually(lambda: stock.waiting.events == ["begun", "ended"], 30)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate], ids=["gzip", "deflate"])
async def test_server_takes_compressed_messages(stock: Grpcio, compression: grpc.Compression) -> None:
    sent = b"x" * 10_000
    assert await stock.unary("Echo")(sent, timeout=60, compression=compression) == sent


async def test_server_is_reflected(stock: Grpcio) -> None:
    call = stock.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(timeout=60)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString())
    found = reflection_pb2.ServerReflectionResponse.FromString(await call.read())
    assert "test.T" in {item.name for item in found.list_services_response.service}
    call.cancel()


@pytest.mark.parametrize("size", [0, 1, 16_384, LARGE_BYTES], ids=["empty", "one byte", "a frame", "large"])
async def test_client_gets_its_message_back(tmp_path: Path, size: int) -> None:
    async with native_client(tmp_path) as (peer, _):
        assert await peer.unary("/test.T/Echo", b"x" * size, timeout_s=60) == b"x" * size


async def test_client_reads_in_order_whether_or_not_it_waits(tmp_path: Path) -> None:
    found: list[bytes] = []

    async def slowly(message: bytes) -> None:
        await asyncio.sleep(0)
        found.append(message)

    async with native_client(tmp_path) as (peer, _):
        await peer.stream("/test.T/Count", b"1000", found.append, timeout_s=60)
        await peer.stream("/test.T/Count", b"1000", slowly, timeout_s=60)
    assert found == [b"%d" % number for number in range(1_000)] * 2


async def test_client_reads_a_status_with_its_details(tmp_path: Path) -> None:
    async with native_client(tmp_path) as (peer, _):
        with pytest.raises(MeshError) as caught:
            await peer.unary("/test.T/Fail", b"", timeout_s=60)
        assert (caught.value.message, caught.value.retry_after_ms) == ("\t50 % 错误\n", 7)
        with pytest.raises(MeshError):
            await peer.stream("/test.T/FailLate", b"", lambda _: None, timeout_s=60)


async def test_client_that_goes_cancels_the_handler(tmp_path: Path) -> None:
    async with native_client(tmp_path) as (peer, waiting):
        call = asyncio.ensure_future(peer.stream("/test.T/Wait", b"", lambda _: None, timeout_s=60))
        await eventually(lambda: waiting.events == ["begun"], 30)
        call.cancel()
        await eventually(lambda: waiting.events == ["begun", "ended"], 30)


async def test_client_whose_reader_fails_hears_of_it_and_cancels(tmp_path: Path) -> None:
    def refuse(_: bytes) -> None:
        raise LookupError("mine")

    async with native_client(tmp_path) as (peer, waiting):
        with pytest.raises(LookupError, match="mine"):
            await peer.stream("/test.T/Wait", b"", refuse, timeout_s=60)
        await eventually(lambda: waiting.events == ["begun", "ended"], 30)
