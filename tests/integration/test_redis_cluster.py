"""The state on a cluster, on real processes: slots move and masters die while requests run."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from helpers.cache_load import LEASE_MS, Seen, under_load
from helpers.cache_service import FOLLOW, LEASE, CacheUnderTest, answer, pieces, running_cache
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.redis_groups import ClusterGroup, TcpServer
from helpers.redis_server import RedisServer
from helpers.router_fleet import Fleet, Reply, measure_s, run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import ScriptedNode
from ssop.v1 import mesh_pb2
from ssop_cache.core.keys import Layout
from ssop_cache.main import open_cache
from ssop_cache.settings import CacheSettings
from ssop_cache.store import RoleError
from ssop_chassis.errors import MeshError
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

TIMEOUT_MS = 1_000
"""Shorter than what a test waits for, and longer than a busy machine keeps a server from answering."""
SLACK_S = 0.5
"""What two shared cores may be late."""
PATIENT_MS = 10_000
"""Where the bound is not the point: who is spared is to see no error of the machine's making."""
KEY = b"\7" * 32


@pytest.fixture
def cache() -> Iterator[RedisServer]:
    with RedisServer("cache") as server:
        yield server


@pytest.fixture(scope="module")
def group() -> Iterator[ClusterGroup]:
    with ClusterGroup() as running:
        yield running


def place_of(tenant: str) -> str:
    return Layout(WIRE_VERSION, CODEC_VERSION).of_tenant(tenant).usage


def tenants_of(group: ClusterGroup, server: TcpServer, count: int) -> list[str]:
    names = [f"tenant-{number}" for number in range(100)]
    owners = group.owners(place_of(name) for name in names)
    return [name for name, owner in zip(names, owners, strict=True) if owner is server][:count]


async def test_levels_and_similar_answers_work_on_a_cluster(group: ClusterGroup, cache: RedisServer) -> None:
    told = group.settings | {"redis_timeout_ms": PATIENT_MS, "local_sync_ms": 10}
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(running_cache(None, cache, **told)) for _ in range(2)]
        for number in range(4):
            tenant = f"tenant-{number}"
            await here.client(tenant).store("a", KEY, answer(tenant))
            await here.client(tenant).put_similar("How far is it?", KEY)
            assert (await there.client(tenant).lookup(KEY)).answer.chunk == answer(tenant)
            assert (await there.client(tenant).find_similar("How far is it?")).answer.chunk == answer(tenant)
        await here.client("tenant-1").flush()

        async def is_forgotten() -> bool:
            return not (await there.client("tenant-1").lookup(KEY)).answer.chunk

        await measure_s(is_forgotten, 60)
        assert (await there.client("tenant-2").lookup(KEY)).answer.chunk == answer("tenant-2")


async def ask_until(fleet: Fleet, is_over: asyncio.Event) -> list[Reply]:
    replies: list[Reply] = []
    while not is_over.is_set() or said_unavailable(replies[-1]):
        replies.append(await fleet.routers[0].ask(ask(f"question {len(replies)}")))
    return replies


def said_unavailable(reply: Reply) -> bool:
    return any("cache" in frame.status.unavailable for frame in reply.frames if frame.HasField("status"))


def reasons(seen: list[Seen]) -> set[str]:
    return {call.reason for call in seen} - {""}


async def follow_once(under_test: CacheUnderTest, tenant: str, number: int) -> float:
    client, key = under_test.client(tenant), bytes([number]) * 32
    leader = await client.admit(f"leader-{number}", key)
    assert (await client.admit(f"follower-{number}", key)).outcome == FOLLOW
    first, second = pieces("a", "b")
    async with client.open_follow(key) as stream:
        await client.append(key, leader.fencing_token, first)
        assert await stream.read() is not None
        said_s = time.monotonic()
        await client.append(key, leader.fencing_token, second)
        assert await stream.read() is not None
        return time.monotonic() - said_s


async def follow_soonest(under_test: CacheUnderTest, tenant: str) -> float:
    """The least of a few times: one alone is long where the machine does something else for a moment."""
    return min([await follow_once(under_test, tenant, number) for number in range(10, 13)])


async def test_slot_that_moves_under_load_costs_no_client_an_error_and_no_lease(
    group: ClusterGroup, cache: RedisServer, tmp_path: Path
) -> None:
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}
    async with AsyncExitStack() as stack:
        told = group.settings | {"redis_timeout_ms": PATIENT_MS}
        under_test = await stack.enter_async_context(running_cache(None, cache, **told))
        fleet = await stack.enter_async_context(
            run_fleet(tmp_path, nodes, servers=(cache, cache), cache=told, routers=1, skip_ms=100)
        )
        source = group.owner(place_of("acme"))
        target = next(server for server in group.masters if server is not source)
        others = tenants_of(group, target, 2) + tenants_of(group, source, 1)
        client = under_test.client("acme")
        for number in range(20):
            await client.admit(f"held-{number}", tokens=10, lease_ms=LEASE_MS)
        lease = await client.admit("leased", KEY, lease_ms=LEASE_MS)
        is_over = asyncio.Event()
        asking = asyncio.ensure_future(ask_until(fleet, is_over))
        async with under_load([under_test.client(name) for name in ["acme", *others]]) as load:
            for there, back in ((target, source), (source, target)):
                began_s = time.monotonic()
                await asyncio.to_thread(group.move, place_of("acme"), there, 0.3)
                moved_s = time.monotonic()
                print(f"moved in {moved_s - began_s:.2f} s")
                back_s = await load.back_after_s(moved_s)
                assert group.owner(place_of("acme")) is there
                assert back is not there
        has_lease = await client.append(KEY, lease.fencing_token, b"", lease_ms=LEASE_MS)
        charged = [await client.settle(f"held-{number}", 7) for number in range(20)]
        waited_s = await follow_soonest(under_test, "acme")
        is_over.set()
        replies = await asyncio.wait_for(asking, 60)
        moved = under_test.metric("ssop_cache_redirections_total", role="state", kind="moved")
    flagged = sum(said_unavailable(reply) for reply in replies)
    print(f"back {back_s:.2f} s after the move; {len(load.seen)} requests; {len(replies)} answers, {flagged} flagged")
    assert has_lease is False
    assert load.reasons <= {"STORE_UNAVAILABLE"}
    assert load.wrong == []
    assert load.forgotten == []
    assert charged == [7] * 20
    assert moved > 0
    assert waited_s < stretched(1)
    assert [reply.error for reply in replies if reply.error is not None] == []


async def test_killed_master_costs_the_tenants_of_others_nothing(group: ClusterGroup, cache: RedisServer) -> None:
    async with running_cache(None, cache, **group.settings | {"redis_timeout_ms": PATIENT_MS}) as under_test:
        victim = group.owner(place_of("acme"))
        spared = tenants_of(group, next(server for server in group.masters if server is not victim), 2)
        hit = tenants_of(group, victim, 2)
        client = under_test.client(hit[0])
        for number in range(20):
            await client.admit(f"held-{number}", tokens=10, lease_ms=LEASE_MS)
        victim.ask("WAIT", 1, 1_000)
        async with (
            under_load([under_test.client(name) for name in spared]) as others,
            under_load([under_test.client(name) for name in hit]) as load,
        ):
            # What was admitted longer ago than a second is to have reached a replica.
            await asyncio.sleep(1.0)
            killed_s = time.monotonic()
            victim.signal(signal.SIGKILL)
            await eventually(lambda: under_test.metric("ssop_cache_store_up", role="state") == 0)
            back_s = await load.back_after_s(killed_s)
            served = others.served_since(killed_s)
        charged = [await client.settle(f"held-{number}", 7) for number in range(20)]
        await eventually(lambda: under_test.cache.state.is_up)
        waited_s = await follow_soonest(under_test, hit[1])
    print(f"back after {back_s:.2f} s; {served} requests of others served meanwhile")
    assert others.reasons == set()
    assert served > 20
    assert load.reasons == {"STORE_UNAVAILABLE"}
    assert load.wrong == []
    assert [age_s for age_s in (killed_s - at_s for at_s in load.forgotten) if age_s > 1] == []
    assert charged == [7] * 20
    assert waited_s < stretched(1)


async def test_frozen_master_costs_a_request_its_bound_and_others_nothing(cache: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        # Without a replica that would take the place of the one that is frozen, however long this takes.
        group = stack.enter_context(ClusterGroup(has_replicas=False))
        told = group.settings | {"redis_timeout_ms": TIMEOUT_MS}
        under_test = await stack.enter_async_context(running_cache(None, cache, **told))
        frozen, other = group.masters[:2]
        hit = under_test.client(tenants_of(group, frozen, 1)[0])
        spared = under_test.client(tenants_of(group, other, 1)[0])
        await hit.admit("frozen-first")
        await spared.admit("frozen-first")
        frozen.signal(signal.SIGSTOP)
        try:
            costs_s = []
            for number in range(8):
                started_s = time.monotonic()
                with pytest.raises(MeshError) as caught:
                    await hit.admit(f"frozen-{number}")
                assert caught.value.reason_name == "STORE_UNAVAILABLE"
                costs_s.append(time.monotonic() - started_s)
                await spared.admit(f"frozen-{number}")
        finally:
            frozen.signal(signal.SIGCONT)
        await eventually(lambda: under_test.cache.state.is_up)
        assert (await hit.admit("frozen-last", b"\3" * 32)).outcome == LEASE
    assert max(costs_s) < stretched(TIMEOUT_MS / 1000 + SLACK_S)
    # Two calls open the circuit.
    assert sorted(costs_s)[5] < stretched(0.1)


async def test_script_that_a_node_forgot_is_sent_again(group: ClusterGroup, cache: RedisServer) -> None:
    async with running_cache(None, cache, **group.settings) as under_test:
        client = under_test.client("forgetful")
        await client.admit("a")
        for server in group.masters:
            server.ask("SCRIPT", "FLUSH")
        await client.admit("b")
        assert await client.settle("b", 4) == 4


async def test_cluster_with_a_node_that_evicts_is_refused(group: ClusterGroup, cache: RedisServer) -> None:
    settings = CacheSettings(cache_url=cache.url, redis_timeout_ms=2_000, **group.settings)
    node = group.masters[-1]
    node.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    try:
        async with AsyncExitStack() as stack:
            opened = open_cache(settings, CollectorRegistry(), stack)
            with pytest.raises(RoleError, match="it would drop quotas and leases"):
                await opened.roles.wait_until_right()
    finally:
        node.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_node_of_a_cluster_is_refused_as_a_single_instance(group: ClusterGroup, cache: RedisServer) -> None:
    settings = CacheSettings(state_url=f"redis://{group.masters[0].address}", cache_url=cache.url)
    async with AsyncExitStack() as stack:
        opened = open_cache(settings, CollectorRegistry(), stack)
        with pytest.raises(RoleError, match="set state_mode to cluster"):
            await opened.roles.wait_until_right()
