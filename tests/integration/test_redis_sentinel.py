"""The state behind sentinels, on real processes: the master dies, hangs and comes back while requests run."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from helpers.cache_load import LEASE_MS, under_load
from helpers.cache_service import FOLLOW, LEASE, CacheUnderTest, pieces, running_cache
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.redis_groups import DOWN_AFTER_MS, SentinelGroup, TcpServer
from helpers.redis_server import RedisServer
from helpers.router_fleet import Fleet, Reply, run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import ScriptedNode
from ssop.v1 import mesh_pb2
from ssop_cache.main import open_cache
from ssop_cache.settings import CacheSettings
from ssop_cache.store import RoleError

TIMEOUT_MS = 1_000
SLACK_S = 0.5
"""What two shared cores may be late."""
FAILOVER_S = 10.0
REPLICATION_S = 1.0
"""What was admitted longer ago than this had reached a replica; the servers allow it two seconds."""


@pytest.fixture
def cache() -> Iterator[RedisServer]:
    with RedisServer("cache") as server:
        yield server


def pub_sub_clients(group: SentinelGroup) -> int:
    return len(group.master.ask("PUBSUB", "CHANNELS", "ssop:wake:*"))


def scripts_run(server: TcpServer) -> int:
    """Scripts that clients have had a server run; a replica hears what they did, not them."""
    stats = server.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


async def follow_once(under_test: CacheUnderTest, key: bytes) -> float:
    """Follow a generation to its end; seconds from its last chunk to its arrival."""
    client = under_test.client()
    leader = await client.admit(f"leader-{key[0]}", key)
    assert (await client.admit(f"follower-{key[0]}", key)).outcome == FOLLOW
    chunks = pieces("a", "b")
    async with client.open_follow(key) as stream:
        await client.append(key, leader.fencing_token, chunks[0])
        assert await stream.read() is not None
        said_s = time.monotonic()
        await client.append(key, leader.fencing_token, chunks[1])
        assert await stream.read() is not None
        return time.monotonic() - said_s


async def follow_soonest(under_test: CacheUnderTest) -> float:
    """The least of a few times: one alone is long where the machine does something else for a moment."""
    return min([await follow_once(under_test, bytes([number]) * 32) for number in range(10, 13)])


async def ask_through_failover(fleet: Fleet, is_over: asyncio.Event) -> list[Reply]:
    """Ask a router until the failover is over and it has admission again."""
    replies: list[Reply] = []
    while not is_over.is_set() or said_unavailable(replies[-1]):
        replies.append(await fleet.routers[0].ask(ask(f"question {len(replies)}")))
        await asyncio.sleep(0.02)
    return replies


async def test_master_killed_under_load_loses_nothing_that_a_replica_had(cache: RedisServer, tmp_path: Path) -> None:
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}
    async with AsyncExitStack() as stack:
        group = stack.enter_context(SentinelGroup())
        told = group.settings | {"redis_timeout_ms": TIMEOUT_MS}
        under_test = await stack.enter_async_context(running_cache(None, cache, **told))
        fleet = await stack.enter_async_context(
            run_fleet(tmp_path, nodes, servers=(cache, cache), cache=told, routers=1, skip_ms=200)
        )
        client = under_test.client()
        for number in range(20):
            await client.admit(f"held-{number}", tokens=10, lease_ms=LEASE_MS)
        old = await client.admit("old", b"\7" * 32, lease_ms=1)
        is_over = asyncio.Event()
        asking = asyncio.ensure_future(ask_through_failover(fleet, is_over))
        async with under_load([under_test.client(f"tenant-{number}") for number in range(8)]) as load:
            await asyncio.sleep(REPLICATION_S + 0.2)
            killed_s = time.monotonic()
            group.master.signal(signal.SIGKILL)
            await eventually(lambda: under_test.metric("ssop_cache_store_up", role="state") == 0)
            back_s = await load.back_after_s(killed_s)
        charged = [await client.settle(f"held-{number}", 7) for number in range(20)]
        new = await client.admit("new", b"\7" * 32)
        waited_s = await follow_soonest(under_test)
        is_over.set()
        replies = await asyncio.wait_for(asking, 60)
    lost = [killed_s - admitted_s for admitted_s in load.forgotten]
    dearest_s = max(seen.cost_s for seen in load.seen)
    flagged = sum(said_unavailable(reply) for reply in replies)
    print(
        f"back after {back_s:.2f} s; {len(load.seen)} requests, {len(lost)} forgotten; dearest call {dearest_s:.3f} s"
    )
    print(f"{len(replies)} answers of a router, {flagged} of them flagged")
    assert load.reasons == {"STORE_UNAVAILABLE"}
    assert load.wrong == []
    assert back_s < stretched(FAILOVER_S)
    # Three calls in a row, each within its bound.
    assert dearest_s < stretched(3 * TIMEOUT_MS / 1000 + SLACK_S)
    assert charged == [7] * 20
    assert [age_s for age_s in lost if age_s > REPLICATION_S] == []
    assert new.outcome == LEASE
    assert new.fencing_token > old.fencing_token
    assert waited_s < stretched(1)
    assert [reply.error for reply in replies if reply.error is not None] == []
    assert 0 < flagged < len(replies)


async def test_frozen_master_is_replaced_and_gets_nothing_when_it_thaws(cache: RedisServer) -> None:
    with SentinelGroup() as group:
        settings = group.settings | {"redis_timeout_ms": TIMEOUT_MS, "probe_interval_ms": 50}
        async with running_cache(None, cache, **settings) as under_test:
            client = under_test.client()
            await follow_once(under_test, b"\4" * 32)
            async with under_load([client]) as load:
                frozen = group.master
                frozen.signal(signal.SIGSTOP)
                frozen_s = time.monotonic()
                try:
                    back_s = await load.back_after_s(frozen_s)
                finally:
                    frozen.signal(signal.SIGCONT)
            ran = scripts_run(frozen)
            for number in range(50):
                await client.admit(f"after-{number}", tokens=10, lease_ms=LEASE_MS)
            # Not by its keys: ten seconds later it is a replica, and has those of the new one.
            assert scripts_run(frozen) == ran
            written = group.master.ask("KEYS", "*:request:after-*")
            # The one that listened to the frozen master listens to the new one.
            waited_s = await follow_soonest(under_test)
            await eventually(lambda: pub_sub_clients(group) > 0)
    print(f"back after {back_s:.2f} s")
    assert back_s > DOWN_AFTER_MS / 1000 / 2
    assert load.reasons == {"STORE_UNAVAILABLE"}
    assert len(written) == 50
    assert waited_s < stretched(1)


def said_unavailable(reply: Reply) -> bool:
    """The answer says that it was served without admission."""
    return any("cache" in frame.status.unavailable for frame in reply.frames if frame.HasField("status"))


async def refusal(**settings: object) -> str:
    async with AsyncExitStack() as stack:
        opened = open_cache(CacheSettings(redis_timeout_ms=2000, **settings), CollectorRegistry(), stack)
        with pytest.raises(RoleError) as caught:
            await opened.roles.wait_until_right()
        return str(caught.value)


async def test_master_that_does_not_fit_its_role_or_has_both_is_refused(cache: RedisServer) -> None:
    with SentinelGroup() as group:
        one = group.settings
        cache_too = {name.replace("state", "cache"): value for name, value in one.items()}
        same = {"cache_url": f"redis://{group.master.address}"}
        assert "does not evict" in await refusal(**one, **same)
        group.master.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
        assert "it would drop quotas and leases" in await refusal(**one, cache_url=cache.url)
    with pytest.raises(ValueError, match="one master can't both evict and keep"):
        CacheSettings(**one, **cache_too)
