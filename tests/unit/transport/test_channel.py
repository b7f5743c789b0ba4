"""The channel that the SDK's async client takes, on the native transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Handler
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import channel_maker, server_starter
from ssop_sdk.connection import error_of_rpc
from unit.chassis.transports import SECRET, echo, hang, one_method

pytestmark = pytest.mark.needs("native_transport")
METHOD = "/test.T/M"


@asynccontextmanager
async def opened(folder: Path, arity: Arity, handler: Handler) -> AsyncIterator[tuple[Any, Any]]:
    """A channel, and the server that it calls."""
    service = one_method(arity, handler, needs_principal=False)
    listen = f"unix:{folder}/s"
    server: Any = await server_starter("native", "test")([service], [listen], authenticate=inner_authenticate(SECRET))
    make = channel_maker("native")
    assert make is not None
    channel = make(listen)
    try:
        yield channel, server
    finally:
        await channel.close()
        await server.stop(0)


async def count(call: Call) -> None:
    for number in range(int(call.request)):
        await call.write(b"%d" % number)
    call.set_trailing_metadata({"x-ssop-status": "OK"})


def begin(channel: Any, request: bytes, timeout_s: float = 60) -> Any:
    return channel.unary_stream(METHOD, bytes)(request, timeout=timeout_s, metadata=(("x-a", "b"),))


async def test_stream_brings_all_messages_in_order_then_its_trailers(tmp_path: Path) -> None:
    async with opened(tmp_path, Arity.SERVER_STREAM, count) as (channel, _):
        call = begin(channel, b"500")
        found = [await call.read() for _ in range(500)]
        assert found == [b"%d" % number for number in range(500)]
        assert await call.read() is grpc.aio.EOF
        assert ("x-ssop-status", "OK") in await call.trailing_metadata()


async def test_stream_that_nobody_reads_holds_its_server_up(tmp_path: Path) -> None:
    written = 0

    async def pour(call: Call) -> None:
        nonlocal written
        while True:
            await call.write(bytes(1_000))
            written += 1

    async with opened(tmp_path, Arity.SERVER_STREAM, pour) as (channel, _):
        call = begin(channel, b"")
        await eventually(lambda: len(call._unread) == 64, 60)
        seen = -1
        while seen != written:
            seen = written
            for _ in range(1_000):
                await asyncio.sleep(0)
        assert len(call._unread) == 64
        assert written < 1_000
        call.cancel()


async def test_status_of_the_mesh_comes_with_its_details(tmp_path: Path) -> None:
    async def refuse(_: Call) -> None:
        raise MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "slow down", retry_after_ms=70)

    async with opened(tmp_path, Arity.SERVER_STREAM, refuse) as (channel, _):
        with pytest.raises(grpc.RpcError) as caught:
            await begin(channel, b"").read()
    error = error_of_rpc(caught.value)
    assert (error.reason, error.retry_after_ms, error.from_mesh) == ("RATE_LIMITED", 70, True)


async def test_connection_that_is_lost_is_no_word_of_the_mesh(tmp_path: Path) -> None:
    async with opened(tmp_path, Arity.SERVER_STREAM, hang) as (channel, server):
        call = begin(channel, b"")
        await eventually(lambda: len(server._tasks) == 1, 60)
        for connection in list(server._connections):
            connection.abort()
        with pytest.raises(grpc.RpcError) as caught:
            await call.read()
    error = error_of_rpc(caught.value)
    assert (error.code, error.from_mesh) == (grpc.StatusCode.UNAVAILABLE, False)


async def test_deadline_ends_a_call(tmp_path: Path) -> None:
    async with opened(tmp_path, Arity.SERVER_STREAM, hang) as (channel, _):
        with pytest.raises(grpc.RpcError) as caught:
            await begin(channel, b"", timeout_s=0.05).read()
    assert error_of_rpc(caught.value).code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_cancelled_call_ends_at_the_server_and_for_its_reader(tmp_path: Path) -> None:
    async with opened(tmp_path, Arity.SERVER_STREAM, hang) as (channel, server):
        call = begin(channel, b"")
        reading = asyncio.ensure_future(call.read())
        await eventually(lambda: len(server._tasks) == 1, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await eventually(lambda: not server._tasks, 60)


async def test_unary_call_answers_or_raises(tmp_path: Path) -> None:
    async with opened(tmp_path, Arity.UNARY, echo) as (channel, _):
        call = channel.unary_unary(METHOD, bytes, bytes.decode)
        assert await call(b"there", timeout=60) == "there"
        with pytest.raises(grpc.RpcError):
            await channel.unary_unary("/test.T/Other", bytes, bytes)(b"", timeout=60)
