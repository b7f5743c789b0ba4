"""One address for several servers: which of them gets a call, and what becomes of calls when one goes."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.gated_servers import METHOD, GatedServer, ask, use_both
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector

pytestmark = pytest.mark.needs("native_transport")


@asynccontextmanager
async def two_servers(folder: Path) -> AsyncIterator[tuple[Any, list[GatedServer]]]:
    servers = [GatedServer(0), GatedServer(1)]
    async with AsyncExitStack() as stack:
        addresses = []
        for server in servers:
            addresses.append(await server.start(f"unix:{folder}/{server.number}"))
            stack.push_async_callback(server.server.stop, 0)
        peer = connector("native")(",".join(addresses))
        stack.push_async_callback(peer.close)
        yield peer, servers


async def test_calls_one_by_one_need_one_connection(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, _):
        assert {await ask(peer) for _ in range(20)} == {0}
        assert [line.ready() is not None for line in peer._lines] == [True, False]


async def test_crowd_is_spread_over_the_servers(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, servers):
        await use_both(peer)
        for server in servers:
            server.gate.clear()
        calls = [asyncio.ensure_future(ask(peer)) for _ in range(20)]
        await eventually(lambda: sum(server.running for server in servers) == 20)
        assert [server.running for server in servers] == [10, 10]
        for server in servers:
            server.gate.set()
        assert Counter(await asyncio.gather(*calls)) == {0: 10, 1: 10}


async def test_call_goes_to_the_one_with_the_fewest(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, servers):
        await use_both(peer)
        servers[0].gate.clear()
        slow = [asyncio.ensure_future(ask(peer)) for _ in range(8)]
        await eventually(lambda: sum(call.done() for call in slow) == 4)
        assert {await ask(peer) for _ in range(50)} == {1}
        servers[0].gate.set()
        await asyncio.gather(*slow)


async def test_server_that_is_not_there_costs_no_call(tmp_path: Path) -> None:
    servers = GatedServer(1)
    address = await servers.start("127.0.0.1:0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        peer = connector("native")(f"127.0.0.1:{taken.getsockname()[1]},{address}")
        assert {await ask(peer) for _ in range(200)} == {1}
        assert set(await asyncio.gather(*(ask(peer) for _ in range(200)))) == {1}
        await peer.close()
    await servers.server.stop(0)


async def test_calls_that_begin_after_a_server_is_lost_go_to_the_other(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, servers):
        await use_both(peer)
        servers[0].gate.clear()
        begun = [asyncio.ensure_future(ask(peer)) for _ in range(10)]
        await eventually(lambda: servers[0].running == 5)
        servers[0].cut()
        await eventually(lambda: sum(call.done() for call in begun) == 10)
        assert sum(call.exception() is not None for call in begun) == 5
        assert set(await asyncio.gather(*(ask(peer) for _ in range(500)))) == {1}


async def test_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, servers):
        await use_both(peer)
        servers[0].cut()
        await eventually(lambda: peer._lines[0].ready() is None)
        assert set(await asyncio.gather(*(ask(peer) for _ in range(50)))) == {1}
        (tmp_path / "0").unlink(missing_ok=True)
        again = GatedServer(0)
        await again.start(f"unix:{tmp_path}/0")
        await use_both(peer)
        assert set(await asyncio.gather(*(ask(peer) for _ in range(50)))) == {0, 1}
        await again.server.stop(0)


async def test_call_of_which_nothing_was_sent_is_begun_again(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (peer, servers):
        await use_both(peer)
        held = peer._lines[0].ready()
        # Its socket takes nothing more, as under a burst; what is begun now waits in this process.
        held.pause_writing()
        calls = [asyncio.ensure_future(ask(peer)) for _ in range(10)]
        await eventually(lambda: sum(call.done() for call in calls) == 5)
        servers[0].cut()
        assert Counter(await asyncio.gather(*calls)) == {1: 10}


@pytest.mark.parametrize("address", ["", "nowhere", "host:port", "a:1,,b:2", "a" * 300 + ":1"])
async def test_what_is_no_address_costs_its_calls_alone(address: str) -> None:
    peer = connector("native")(address)
    with pytest.raises(MeshError) as caught:
        await peer.unary(METHOD, b"", timeout_s=60)
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    await peer.close()


async def test_without_any_server_calls_say_why(tmp_path: Path) -> None:
    peer = connector("native")(f"unix:{tmp_path}/a,unix:{tmp_path}/b")
    for _ in range(3):
        with pytest.raises(MeshError, match="can't connect") as caught:
            await peer.unary(METHOD, b"", timeout_s=60)
        assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    await peer.close()
