"""One model call for many misses on one key, over four router processes, whatever becomes of the leader."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.ledger import LedgerFault, check_flight, check_newest
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import PATIENCE_MS, Fleet, Reply, run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import ScriptedNode, encode, node_status_chunk
from ssop.v1 import mesh_pb2
from ssop_chassis import grpc_peer, grpc_server
from ssop_chassis.call import Call

LEASE_MS = 4_000
"""A router renews its leases many times within it, also where it gets nothing of the machine for seconds."""
Servers = tuple[RedisServer, RedisServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


class Model:
    """A node's script. Call n answers `moods[n]`, the last for all that follow, once `gates[n]` is open."""

    def __init__(self, *moods: str) -> None:
        self.moods = moods
        self.gates = [asyncio.Event() for _ in moods]
        self.calls = 0

    def open(self) -> None:
        for gate in self.gates:
            gate.set()

    async def __call__(self, call: Call, _: Any) -> None:
        number = min(self.calls, len(self.moods) - 1)
        self.calls += 1
        await call.write(node_status_chunk())
        await self.gates[number].wait()
        for chunk in encode(json.dumps({"mood": self.moods[number], "score": 3})):
            await call.write(chunk)


def nodes_of(model: Model) -> dict[str, ScriptedNode]:
    return {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], model)}


def start(fleet: Fleet, number: int, count: int) -> "list[asyncio.Task[Reply]]":
    router = fleet.routers[number]
    return [asyncio.ensure_future(router.ask(ask(policy="full"))) for _ in range(count)]


async def test_1000_misses_on_four_routers_are_one_model_call(servers: Servers, tmp_path: Path) -> None:
    model = Model("fine")
    async with run_fleet(tmp_path, nodes_of(model), servers=servers, store_ms=PATIENCE_MS, lease_ms=60_000) as fleet:
        tasks = [task for number in range(4) for task in start(fleet, number, 250)]
        await eventually(lambda: model.calls > 0)
        model.open()
        replies = await asyncio.gather(*tasks)
    assert [reply.error for reply in replies] == [None] * 1_000
    assert len({reply.document for reply in replies}) == 1
    check_flight(model.calls, 1)


async def test_leader_that_is_killed_costs_one_more_call(servers: Servers, tmp_path: Path) -> None:
    model = Model("never", "fine")
    async with run_fleet(tmp_path, nodes_of(model), servers=servers, store_ms=PATIENCE_MS, lease_ms=LEASE_MS) as fleet:
        led = start(fleet, 0, 1)
        await eventually(lambda: model.calls == 1)
        tasks = [task for number in (1, 2, 3) for task in start(fleet, number, 333)]
        # The leader hears of its followers by the next append.
        await eventually(lambda: _followers(fleet) > 0)
        fleet.routers[0].kill()
        killed_s = time.monotonic()
        await eventually(lambda: model.calls == 2)
        print(f"taken over {time.monotonic() - killed_s:.2f} s after the kill")
        model.gates[1].set()
        replies = await asyncio.gather(*tasks)
        assert (await led[0]).error is not None
    assert [reply.error for reply in replies] == [None] * 999
    assert {reply.text for reply in replies} == {"fine"}
    check_flight(model.calls, 2)


def _followers(fleet: Fleet) -> int:
    assert fleet.servers is not None
    state = fleet.servers[0]
    leases = state.keys(f"{fleet.keys.lease(b'')}*")
    # Fence, state, when it lapses, and until when it is followed.
    return sum(int((state.ask("GET", name) or b"0 - 0 0").split()[3]) > 0 for name in leases)


@pytest.fixture
def patient_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that keep the calls of a frozen router for more than 7 s: a busy machine takes longer to take over."""
    for end in (grpc_peer, grpc_server):
        monkeypatch.setattr(end, "KEEPALIVE", [])


async def outlive_the_lease(servers: Servers, folder: Path, without: str) -> None:
    """A leader is frozen until another has stored its answer, and then goes on and stores its own."""
    model = Model("stale", "fresh")
    async with run_fleet(
        folder,
        nodes_of(model),
        servers=servers,
        lease_ms=LEASE_MS,
        store_ms=PATIENCE_MS,
        routers=3,
        without=without,
        # The copies on the host have a guard of their own.
        cache={"local_bytes": 0},
        # The leader is frozen for as long as a busy machine takes over.
        first_field_timeout_ms=120_000,
    ) as fleet:
        led = start(fleet, 0, 1)
        await eventually(lambda: model.calls == 1)
        fleet.routers[0].freeze()
        followed = start(fleet, 1, 1)
        await eventually(lambda: model.calls == 2)
        model.gates[1].set()
        assert (await followed[0]).text == "fresh"
        model.gates[0].set()
        fleet.routers[0].thaw()
        assert (await led[0]).error is None
        found = [await fleet.routers[number].ask(ask(policy="full")) for number in (0, 1, 2)]
    check_flight(model.calls, 2)
    check_newest([reply.text for reply in found], "fresh")


@pytest.mark.usefixtures("patient_nodes")
async def test_stale_leader_does_not_store_its_answer(servers: Servers, tmp_path: Path) -> None:
    await outlive_the_lease(servers, tmp_path, "")


@pytest.mark.usefixtures("patient_nodes")
async def test_checker_fails_without_fencing(servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(LedgerFault, match="stale"):
        await outlive_the_lease(servers, tmp_path, "fencing")
