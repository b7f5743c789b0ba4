"""Connections of the native transport: made, lost, made again, drained, encrypted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.certificates import make_authority, make_certificate
from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Handler
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.settings import TlsSettings
from ssop_chassis.tls import open_tls
from ssop_chassis.transport import connector, server_starter
from unit.chassis.transports import SECRET, echo, hang, one_method

pytestmark = pytest.mark.needs("native_transport")
METHOD = "/test.T/M"


async def start(listen: str, arity: Arity = Arity.UNARY, handler: Handler = echo, **options: Any) -> Any:
    service = one_method(arity, handler, needs_principal=False)
    authenticate = inner_authenticate(SECRET)
    return await server_starter("native", "test")([service], [listen], authenticate=authenticate, **options)


async def test_peer_without_a_server_says_so_and_connects_when_there_is_one(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/s"
    peer = connector("native")(listen)
    with pytest.raises(MeshError) as caught:
        await peer.unary(METHOD, b"", timeout_s=30)
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    server = await start(listen)
    answers: list[bytes] = []

    async def is_answered() -> None:
        while not answers:
            try:
                answers.append(await peer.unary(METHOD, b"there", timeout_s=30))
            except MeshError:
                await asyncio.sleep(0.01)

    await asyncio.wait_for(is_answered(), 30)
    await peer.close()
    await server.stop(0)
    assert answers == [b"there"]


async def test_call_on_a_connection_that_is_lost_fails_at_once(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/s"
    server = await start(listen, handler=hang)
    peer = connector("native")(listen)
    call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=300))
    await eventually(lambda: len(server._tasks) == 1, 30)
    for connection in list(server._connections):
        connection.abort()
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(call, 30)
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    await peer.close()
    await server.stop(0)


async def test_calls_that_run_outlive_the_drain_and_new_ones_go_elsewhere(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/s"
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        await gate.wait()
        await call.write(b"whole")

    first = await start(listen, handler=wait)
    peer: Any = connector("native")(listen)
    call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=60))
    await eventually(lambda: len(first._tasks) == 1, 30)
    stopping = asyncio.ensure_future(first.stop(60))
    await eventually(lambda: peer._pick() is None, 30)
    second = await start(listen)
    assert await peer.unary(METHOD, b"new", timeout_s=60) == b"new"
    gate.set()
    assert await call == b"whole"
    await stopping
    await peer.close()
    await second.stop(0)


async def test_calls_above_the_limit_are_overloaded(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/s"
    server = await start(listen, handler=hang, max_concurrent_calls=3)
    peers = [connector("native")(listen) for _ in range(2)]
    calls = [asyncio.ensure_future(peers[0].unary(METHOD, b"", timeout_s=60)) for _ in range(3)]
    await eventually(lambda: len(server._tasks) == 3, 30)
    with pytest.raises(MeshError) as caught:
        await peers[1].unary(METHOD, b"", timeout_s=60)
    assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for peer in peers:
        await peer.close()
    await server.stop(0)


async def test_address_in_use_is_an_error(tmp_path: Path) -> None:
    server = await start("127.0.0.1:0")
    with pytest.raises(OSError, match="in use"):
        await start(server.addresses[0])
    await server.stop(0)


@pytest.mark.needs("openssl")
async def test_certificates_are_asked_of_both_sides_and_replaced_between_calls(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    own = make_certificate(tmp_path, authority)
    settings = TlsSettings(
        certificate_file=own.certificate, key_file=own.key, ca_file=authority.certificate, server_name="mesh.test"
    )
    server = await start("127.0.0.1:0", tls=open_tls(settings, "cache"))
    address = server.addresses[0]
    peer: Any = connector("native")(address, tls=open_tls(settings, "router"))
    assert await peer.unary(METHOD, b"secret", timeout_s=60) == b"secret"
    before = peer._pick()
    own.replace(make_certificate(tmp_path, authority, "next"))

    async def until_renewed() -> None:
        while peer._pick() is before:
            assert await peer.unary(METHOD, b"more", timeout_s=60) == b"more"
            await asyncio.sleep(0.05)

    await asyncio.wait_for(until_renewed(), 60)
    await peer.close()
    nameless = settings.model_copy(update={"certificate_file": None, "key_file": None})
    for tls in (open_tls(nameless, "router"), open_tls(TlsSettings(), "router")):
        stranger = connector("native")(address, tls=tls)
        with pytest.raises(MeshError) as caught:
            await stranger.unary(METHOD, b"", timeout_s=60)
        assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
        await stranger.close()
    await server.stop(0)


async def test_cancel_is_heard_in_every_turn_of_connecting(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/s"
    server = await start(listen, handler=hang)
    for turns in range(30):
        peer = connector("native")(listen)
        call = asyncio.ensure_future(peer.unary(METHOD, b"", timeout_s=300))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await peer.close()
    await eventually(lambda: not server._tasks)
    await server.stop(0)
