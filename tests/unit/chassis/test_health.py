"""The health service."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from grpc_health.v1 import health_pb2

from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.health import MAX_WATCHES, Health
from ssop_chassis.memory import MemoryPeer, call_handler

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def request(name: str = "") -> bytes:
    return bytes(health_pb2.HealthCheckRequest(service=name).SerializeToString())


def status(message: bytes) -> int:
    return int(health_pb2.HealthCheckResponse.FromString(message).status)


async def check(health: Health, name: str = "") -> int:
    (message,) = await call_handler(health.check, request(name))
    return status(message)


async def test_not_serving_until_told() -> None:
    health = Health(["a"])
    assert await check(health) == NOT_SERVING
    health.set_serving(True)
    assert [await check(health), await check(health, "a")] == [SERVING, SERVING]


async def test_check_of_an_unknown_service_is_not_found() -> None:
    with pytest.raises(MeshError) as caught:
        await check(Health([]), "nope")
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_UNKNOWN


async def test_watch_tells_each_change_and_ends_with_the_drain() -> None:
    health = Health([])
    seen: list[int] = []
    peer = MemoryPeer([health.service()], lambda _: pytest.fail("health needs no principal"))
    watch = asyncio.ensure_future(
        peer.stream(
            "/grpc.health.v1.Health/Watch", request(), lambda message: seen.append(status(message)), timeout_s=5
        )
    )
    await eventually(lambda: seen == [NOT_SERVING])
    health.set_serving(True)
    await eventually(lambda: seen == [NOT_SERVING, SERVING])
    health.close()
    await watch
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_watch_of_an_unknown_service_says_so_and_stays_open() -> None:
    peer = MemoryPeer([Health([]).service()], lambda _: pytest.fail("health needs no principal"))
    async with peer.open("/grpc.health.v1.Health/Watch", request("nope")) as stream:
        message = await stream.read()
    assert message is not None
    assert status(message) == UNKNOWN


async def test_watches_are_bounded_and_make_room_when_they_end() -> None:
    health = Health([])
    peer = MemoryPeer([health.service()], lambda _: pytest.fail("health needs no principal"))
    path = "/grpc.health.v1.Health/Watch"
    async with AsyncExitStack() as stack:
        for _ in range(MAX_WATCHES):
            assert await (await stack.enter_async_context(peer.open(path, request()))).read() is not None
        with pytest.raises(MeshError) as caught:
            await peer.stream(path, request(), lambda _: None, timeout_s=5)
        assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED
        assert await check(health) == NOT_SERVING
    async with peer.open(path, request()) as stream:
        assert await stream.read() is not None
