"""How long connections last: their age, what calls get after it, and the end of those without calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.gated_servers import GatedServer, ask
from helpers.raw_http2 import PING, RawClient, call, message
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import Kind, connector

pytestmark = pytest.mark.needs("native_transport")
life = pytest.importorskip("ssop_transport.life")


async def start(folder: Path, kind: Kind = "native", **options: Any) -> tuple[Any, GatedServer]:
    server = GatedServer(1)
    address = await server.start(f"unix:{folder}/s", **options)
    return connector(kind)(address), server


async def end(peer: Any, server: GatedServer) -> None:
    await peer.close()
    await server.server.stop(0)


@pytest.mark.parametrize("kind", ["grpc", "native"])
async def test_connections_grow_old_and_no_call_fails(tmp_path: Path, kind: Kind) -> None:
    peer, server = await start(tmp_path, kind, max_connection_age_ms=30)
    made: set[Any] = set()

    async def call() -> None:
        while len(made) < 4:
            made.update(server.server._connections)
            try:
                assert await ask(peer) == 1
            except MeshError:
                # gRPC's own client ends a call as "Stream removed" when it crosses the server's GOAWAY.
                if kind == "native":
                    raise

    await asyncio.wait_for(asyncio.gather(*(call() for _ in range(8))), 120)
    await end(peer, server)


async def test_call_that_runs_outlives_the_age(tmp_path: Path) -> None:
    peer, server = await start(tmp_path, max_connection_age_ms=30)
    server.gate.clear()
    slow = asyncio.ensure_future(ask(peer))
    await eventually(lambda: server.running == 1)
    await eventually(lambda: peer._lines[0].has_retired or peer._pick() is None)
    old = next(iter(peer._lines[0]._retired))
    server.gate.set()
    assert await slow == 1
    await eventually(lambda: old.is_lost)
    await end(peer, server)


async def test_call_is_cut_when_its_grace_is_over(tmp_path: Path) -> None:
    peer, server = await start(tmp_path, max_connection_age_ms=30, max_connection_age_grace_ms=30)
    server.gate.clear()
    with pytest.raises(MeshError):
        await ask(peer)
    await eventually(lambda: server.running == 0)
    await end(peer, server)


async def test_connection_without_calls_is_ended_and_made_again(tmp_path: Path) -> None:
    peer, server = await start(tmp_path, max_connection_idle_ms=30)
    assert await ask(peer) == 1
    await eventually(lambda: not server.server._connections)
    assert await ask(peer) == 1
    await end(peer, server)


async def test_connection_with_a_call_is_not_idle(tmp_path: Path) -> None:
    peer, server = await start(tmp_path, max_connection_idle_ms=30)
    server.gate.clear()
    slow = asyncio.ensure_future(ask(peer))
    await eventually(lambda: server.running == 1)
    (life,) = server.server._connections.values()
    before = life._idle
    # Looked at twice and left.
    await eventually(lambda: life._idle is not before)
    before = life._idle
    await eventually(lambda: life._idle is not before)
    assert peer._pick() is not None
    server.gate.set()
    assert await slow == 1
    await end(peer, server)


async def test_client_that_is_gone_without_a_word_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_transport.life._PARTING_S", 0.01)
    peer, server = await start(tmp_path, max_connection_idle_ms=30)
    reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
    await eventually(lambda: len(server.server._connections) == 1)
    await eventually(lambda: not server.server._connections)
    assert await reader.read() != b""
    writer.close()
    await end(peer, server)


async def test_lives_end_with_their_connections(tmp_path: Path) -> None:
    peer, server = await start(tmp_path, max_connection_age_ms=3_600_000, max_connection_idle_ms=3_600_000)
    assert await ask(peer) == 1
    (life,) = server.server._connections.values()
    await peer.close()
    await eventually(lambda: not server.server._connections)
    assert life._age.cancelled()
    assert life._idle.cancelled()
    await server.server.stop(0)


async def test_client_that_answers_no_ping_ends_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_transport.silence.TICK_S", 0.01)
    peer, server = await start(tmp_path)
    server.gate.clear()
    client = await RawClient.connect(f"{tmp_path}/s")
    await client.send(call(1) + message(1, b""))
    await eventually(lambda: server.running == 1)
    kinds = {found.kind for found in await asyncio.wait_for(client.rest(), 60)}
    assert PING in kinds
    await eventually(lambda: server.running == 0)
    await end(peer, server)


async def test_client_that_answers_pings_keeps_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssop_transport.silence.TICK_S", 0.05)
    peer, server = await start(tmp_path)
    server.gate.clear()
    slow = asyncio.ensure_future(ask(peer))
    await eventually(lambda: server.running == 1)
    (connection,) = server.server._connections
    for _ in range(3):
        # Silent until it is pinged, heard again after that.
        await eventually(lambda: server.server._silence.ticks(connection) >= 4 or slow.done())
        await eventually(lambda: server.server._silence.ticks(connection) == 0 or slow.done())
    assert not slow.done()
    server.gate.set()
    assert await slow == 1
    await end(peer, server)


class Connection:
    """What a `Life` and `make_place` know of a connection."""

    def __init__(self, *, heard_s: float = 0.0, streams: int = 0, is_draining: bool = False) -> None:
        self.heard_s, self.stream_count, self.is_draining = heard_s, streams, is_draining
        self.begun_count = 0
        self.done: list[str] = []

    def announce_drain(self) -> None:
        self.done.append("announce")

    def drain(self) -> None:
        self.done.append("drain")

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


async def test_connection_whose_calls_ended_between_two_looks_was_not_idle() -> None:
    connection: Any = Connection()
    one = life.Life(connection, life.Lives(age_s=0, grace_s=0, idle_s=3600))
    connection.begun_count = 5
    one._look()
    assert connection.done == []
    one._look()
    assert connection.done == ["announce"]
    one.end()


async def test_connection_that_does_not_hang_up_is_cut() -> None:
    connection: Any = Connection()
    one = life.Life(connection, life.Lives(age_s=0, grace_s=0, idle_s=0))
    one._part()
    assert one._age is not None
    one._age._run()
    assert connection.done == ["close", "abort"]
    one.end()


def test_connections_that_are_asked_to_go_are_bounded() -> None:
    idle: list[Any] = [Connection(heard_s=2.0), Connection(heard_s=1.0)]
    busy: list[Any] = [Connection(streams=1) for _ in range(64)]
    assert life.make_place(idle + busy[:2], 4)
    assert [connection.done for connection in idle] == [[], ["close"]]
    assert not life.make_place(busy, 4)
    assert not life.make_place([Connection(), *busy, *busy[:3]], 4)
