"""Ejections that routers tell each other: what a hint spares the second router, and what it can't do."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.cache_service import running_cache
from helpers.eventually import eventually
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import FleetRouter, run_fleet
from helpers.scripted_mesh import SECRET, Mesh, ask, run_router
from helpers.scripted_node import R, ScriptedNode, answering, failing
from ssop.v1 import hints_pb2, mesh_pb2
from ssop_cache.core.hints import MAX_HINTS, StoredHint, read_reply, share_hints
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import RESERVED_TENANT, Principal, Signer
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.serving import wall_clock_ms
from ssop_router.hints import SHARE_METHOD

Servers = tuple[RedisServer, RedisServer]
ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


def four_nodes() -> dict[str, ScriptedNode]:
    """Four of one tier, the first of which fails everything."""
    nodes = {f"full-{number}": ScriptedNode(f"full-{number}", [mesh_pb2.TIER_FULL]) for number in range(1, 5)}
    nodes["full-1"].script = failing(R.ERROR_REASON_BACKEND_FAILED)
    nodes["full-1"].is_well = False
    return nodes


def ejections(router: FleetRouter) -> list[str]:
    """The rules by which a router took nodes out."""
    return [line["rule"] for line in router.log if line.get("message") == "a node is out of rotation"]


async def ask_until_out(router: FleetRouter) -> None:
    deadline_s = time.monotonic() + 60
    while not ejections(router):
        assert time.monotonic() < deadline_s, "the node is still in"
        replies = await asyncio.gather(
            *(router.ask(ask(f"{number} {random.random()}", policy="full,no_cache")) for number in range(16))
        )
        assert [reply.error for reply in replies] == [None] * 16


async def test_second_router_sends_no_call_to_a_node_that_the_first_took_out(servers: Servers, tmp_path: Path) -> None:
    nodes = four_nodes()
    async with run_fleet(tmp_path, nodes, servers=servers, routers=2, health={"hint_poll_ms": 200}) as fleet:
        first, second = fleet.routers
        await ask_until_out(first)
        await eventually(lambda: bool(ejections(second)))
        nodes["full-1"].forget()
        replies = [await second.ask(ask(f"{number}", policy="full,no_cache")) for number in range(32)]
        assert [reply.error for reply in replies] == [None] * 32
        assert len(nodes["full-1"].requests) == 0
        assert ejections(second) == ["hinted"]


async def test_without_a_hint_a_router_finds_out_by_its_own_failures(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        nodes = four_nodes()
        async with run_router(nodes, cache_peer=peer, has_rag=False) as mesh:
            await generate_until_out(mesh)
    assert len(nodes["full-1"].requests) >= 5


async def generate_until_out(mesh: Mesh) -> None:
    while mesh.metric("ssop_router_node_ejected", address="full-1") != 1:
        crowd = [mesh.generate(ask(policy="full,no_cache")) for _ in range(16)]
        assert [answer.error for answer in await asyncio.gather(*crowd)] == [None] * 16


async def say(peer: MemoryPeer, router_id: str, *addresses: str, age_ms: int = 0, tenant: str = RESERVED_TENANT) -> Any:
    request = hints_pb2.ShareHintsRequest(router_id=router_id)
    for address in addresses:
        request.hints.add(address=address, rule="slow", age_ms=age_ms)
    metadata = Signer(SECRET, "router", wall_clock_ms).metadata(Principal(tenant, "k1"))
    data = await peer.unary(SHARE_METHOD, request.SerializeToString(), timeout_s=30, metadata=metadata)
    return hints_pb2.ShareHintsResponse.FromString(data).hints


def addresses(hints: Any) -> list[str]:
    return [hint.address for hint in hints]


async def test_what_a_router_says_replaces_what_it_said_and_is_not_told_to_itself(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        assert addresses(await say(peer, ONE, "unix:/a/b", "c:1")) == []
        assert addresses(await say(peer, OTHER)) == ["c:1", "unix:/a/b"]
        await say(peer, ONE, "c:1")
        assert addresses(await say(peer, OTHER, "d:1")) == ["c:1"]
        assert addresses(await say(peer, ONE)) == ["d:1"]
        assert addresses(await say(peer, OTHER)) == []


async def test_youngest_hint_of_a_node_counts(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        await say(peer, ONE, "a:1", age_ms=30_000)
        await say(peer, OTHER, "a:1", age_ms=100)
        (hint,) = await say(peer, "3" * 32)
        assert 100 <= hint.age_ms < 20_000


async def test_hints_of_all_routers_are_bounded(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        for number in range(10):
            given = [StoredHint(f"{number}-{index}:1", "slow", 0) for index in range(64)]
            await under_test.cache.state.run(share_hints(f"{number}" * 32, given))
        reply = await under_test.cache.state.run(share_hints("f" * 32, []))
    assert len(read_reply(reply)) == MAX_HINTS


@pytest.mark.parametrize("tenant", ["acme", "Mesh", "mesh\0", "mesh "])
async def test_tenant_can_neither_give_nor_read_hints(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        with pytest.raises(MeshError) as caught:
            await say(peer, ONE, "a:1", tenant=tenant)
        assert caught.value.reason_name == "PRINCIPAL_INVALID"
        assert addresses(await say(peer, OTHER)) == []


@pytest.mark.parametrize(
    ("router_id", "address", "rule", "count"),
    [("", "a:1", "slow", 1), ("x" * 32, "a:1", "slow", 1), (ONE, "", "slow", 1), (ONE, "a" * 257, "slow", 1),
     (ONE, "a:1", "Slow 1", 1), (ONE, "a:1", "slow", 65)],
)  # fmt: skip
async def test_malformed_hints_are_refused(
    servers: Servers, router_id: str, address: str, rule: str, count: int
) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        hints = [hints_pb2.NodeHint(address=address, rule=rule)] * count
        request = hints_pb2.ShareHintsRequest(router_id=router_id, hints=hints).SerializeToString()
        metadata = Signer(SECRET, "router", wall_clock_ms).metadata(Principal(RESERVED_TENANT, "k1"))
        with pytest.raises(MeshError) as caught:
            await peer.unary(SHARE_METHOD, request, timeout_s=30, metadata=metadata)
        assert caught.value.reason_name == "REQUEST_INVALID"


async def exchange(mesh: Mesh) -> None:
    assert mesh.router.hints is not None
    await mesh.router.hints.exchange()


async def test_false_hint_costs_a_node_one_try_and_nothing_else(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        nodes = {name: ScriptedNode(name, [mesh_pb2.TIER_FULL]) for name in ("full-1", "full-2")}
        async with run_router(nodes, cache_peer=peer, has_rag=False) as mesh:
            await say(peer, ONE, "full-1", "elsewhere:1")
            await exchange(mesh)
            await eventually(lambda: nodes["full-1"].warm_ups == 1)
            await say(peer, ONE, "full-1")
            await exchange(mesh)
            assert (await mesh.generate(ask(policy="full,no_cache"))).error is None
            assert nodes["full-1"].warm_ups == 1
            assert mesh.metric("ssop_router_node_ejected", address="full-1") == 0
            assert mesh.metric("ssop_router_hints_total", outcome="taken") == 2
            assert mesh.metric("ssop_router_hints_total", outcome="ignored") == 1


async def test_old_hint_is_ignored(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        async with run_router(four_nodes(), cache_peer=peer, has_rag=False) as mesh:
            await say(peer, ONE, "full-1", age_ms=10_500)
            await exchange(mesh)
            assert mesh.metric("ssop_router_hints_total", outcome="ignored") == 1
            assert mesh.metric("ssop_router_hints_total", outcome="taken") == 0


async def test_without_redis_a_router_judges_alone(servers: Servers) -> None:
    async with running_cache(*servers, redis_timeout_ms=1_000) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        nodes = four_nodes()
        async with run_router(nodes, cache_peer=peer, has_rag=False) as mesh:
            await exchange(mesh)
            assert mesh.metric("ssop_router_hints_shared") == 1
            servers[0].kill()
            await exchange(mesh)
            assert mesh.metric("ssop_router_hints_shared") == 0
            await generate_until_out(mesh)
            nodes["full-1"].script, nodes["full-1"].is_well = answering(), True
            await eventually(lambda: mesh.metric("ssop_router_node_ejected", address="full-1") == 0)
