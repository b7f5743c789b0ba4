"""The native transport on several servers behind one name: found by name, killed, and frozen under load."""

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from helpers.echo_process import echo_processes
from helpers.eventually import eventually
from helpers.gated_servers import GatedServer, ask, use_both
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector

pytestmark = pytest.mark.needs("native_transport")
WIDTH = 16


class Load:
    """Calls that go on until told; each is noted with whether it began after `mark`."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        self._is_on = True
        self.is_marked = False
        self.answers: Counter[tuple[bool, bytes]] = Counter()
        self.failures: Counter[bool] = Counter()
        self._tasks = [asyncio.ensure_future(self._call()) for _ in range(WIDTH)]

    async def _call(self) -> None:
        while self._is_on:
            is_late = self.is_marked
            try:
                name = await self._peer.unary("/test.T/Slow", b"3", timeout_s=120)
            except MeshError:
                self.failures[is_late] += 1
            else:
                self.answers[is_late, name] += 1

    async def end(self) -> None:
        """Let the calls that run end."""
        self._is_on = False
        await asyncio.gather(*self._tasks)


async def test_killed_server_costs_what_it_had_begun_and_nothing_else() -> None:
    with echo_processes("a", "b") as processes:
        peer: Any = connector("native")(",".join(process.address for process in processes))
        load = Load(peer)
        await eventually(lambda: load.answers[False, b"a"] > 100 and load.answers[False, b"b"] > 100)
        assert not load.failures
        processes[0].kill()
        await eventually(lambda: peer._lines[0].ready() is None)
        load.is_marked = True
        await eventually(lambda: load.answers[True, b"b"] > 500)
        await load.end()
        await peer.close()
    assert load.failures[False] <= WIDTH
    assert not load.failures[True]
    assert not load.answers[True, b"a"]


async def test_frozen_server_costs_what_it_had_begun_and_nothing_else() -> None:
    with echo_processes("a", "b") as processes:
        peer: Any = connector("native")(",".join(process.address for process in processes))
        load = Load(peer)
        await eventually(lambda: load.answers[False, b"a"] > 100 and load.answers[False, b"b"] > 100)
        processes[0].freeze()
        await eventually(lambda: peer._lines[0].is_doubtful)
        load.is_marked = True
        await eventually(lambda: load.answers[True, b"b"] > 500)
        processes[0].thaw()
        await load.end()
        await peer.close()
    assert load.failures[False] <= WIDTH
    assert not load.failures[True]


async def test_names_are_looked_up_and_those_that_went_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    servers = [GatedServer(0), GatedServer(1)]
    first = await servers[0].start("127.0.0.1:0")
    port = int(first.rpartition(":")[2])
    await servers[1].start(f"127.0.0.2:{port}")

    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "mesh.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port)) for found in hosts]

    peer: Any = connector("native")(f"dns:///mesh.test:{port}")
    monkeypatch.setattr("ssop_transport.target._infos", look_up)
    await use_both(peer)
    gone = peer._lines[0]
    del hosts[0]
    await peer._resolve()
    assert set(await asyncio.gather(*(ask(peer) for _ in range(50)))) == {1}
    await eventually(lambda: not gone.has_retired and not servers[0].server._connections)
    await peer.close()
    for server in servers:
        await server.server.stop(0)
