"""What happens to the cache service when its servers freeze, die, lose data or have the wrong role."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.cache_service import HIT, LEASE, MISS, CacheClient, CacheUnderTest, answer, running_cache
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop.v1.cache_pb2 import AdmitResponse
from ssop_cache.core.circuit import OPEN_AFTER
from ssop_cache.deployment import SingleDeployment
from ssop_cache.main import open_cache
from ssop_cache.roles import RoleChecker
from ssop_cache.settings import CacheSettings
from ssop_cache.store import RoleError
from ssop_chassis.errors import MeshError

Servers = tuple[RedisServer, RedisServer]
KEY = b"\1" * 32
MONTH_MS = 2_678_400_000
"""A window of the budget whose end no test sees."""
TIMEOUT_MS = 50
SLACK_S = 0.1
"""The bound is on the wait for Redis; the rest is what two shared cores take to run the test itself."""


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


async def unavailable(call: object) -> float:
    """Seconds until the call failed with STORE_UNAVAILABLE."""
    started_s = time.monotonic()
    with pytest.raises(MeshError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.reason_name == "STORE_UNAVAILABLE"
    return time.monotonic() - started_s


async def admitted(client: CacheClient, request_id: str, key: bytes = b"") -> AdmitResponse:
    """Ask until there is an answer: 50 ms are over where Redis is well, and gets no core."""
    async with asyncio.timeout(60):
        while True:
            with suppress(MeshError):
                return await client.admit(request_id, key)
            await asyncio.sleep(0.01)


def bound_of(under_test: CacheUnderTest) -> float:
    """Seconds that a frozen state may cost: 50 ms; more where it was just slow. The machine is looked at afterwards."""
    return under_test.cache.state.timeout_s + SLACK_S


def is_up(under_test: CacheUnderTest) -> bool:
    return under_test.cache.state.is_up and under_test.cache.cache.is_up


async def test_frozen_state_costs_a_call_its_bound_and_then_nothing(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers, redis_timeout_ms=TIMEOUT_MS) as under_test:
        client = under_test.client()
        await admitted(client, "a", KEY)
        bound_s = bound_of(under_test)
        state.freeze()
        costs_s = [await unavailable(client.admit(f"r{n}", KEY)) for n in range(2)]
        # The least: one alone is long where the machine does something else for a moment.
        assert min(costs_s) < stretched(bound_s)
        assert not under_test.cache.state.is_up
        costs_s = [await unavailable(client.admit(f"s{n}", KEY)) for n in range(20)]
        assert sorted(costs_s)[10] < stretched(0.01)
        assert under_test.metric("ssop_cache_store_up", role="state") == 0
        state.thaw()
        await eventually(lambda: is_up(under_test))
        assert (await admitted(client, "b", KEY)).fencing_token == 0


async def test_both_frozen_cost_one_bound_together(servers: Servers) -> None:
    state, cache = servers
    async with running_cache(*servers, redis_timeout_ms=TIMEOUT_MS) as under_test:
        client = under_test.client()
        await admitted(client, "a", KEY)
        bound_s = bound_of(under_test)
        state.freeze()
        cache.freeze()
        cost_s = await unavailable(client.admit("b", KEY))
        assert cost_s < stretched(bound_s)


async def test_hundred_callers_of_a_frozen_store_all_return_in_its_bound(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers, redis_timeout_ms=TIMEOUT_MS, redis_connections=4) as under_test:
        client = under_test.client()
        await admitted(client, "a")
        bound_s = bound_of(under_test)
        state.freeze()
        started_s = time.monotonic()
        await asyncio.gather(*(unavailable(client.admit(f"r{n}")) for n in range(100)))
        took_s = time.monotonic() - started_s
        assert took_s < stretched(2 * bound_s + SLACK_S)


async def test_without_the_cache_instance_leases_and_budgets_hold(servers: Servers) -> None:
    _, cache = servers
    async with running_cache(*servers, budget_tokens=100, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client()
        lease = await client.admit("a", KEY, tokens=60)
        cache.kill()
        assert (await client.admit("a", KEY, tokens=60)).fencing_token == lease.fencing_token
        with pytest.raises(MeshError, match="budget"):
            await client.admit("b", tokens=41)
        await client.commit(KEY, lease.fencing_token, answer())
        assert await client.settle("a", 60) == 60
        assert under_test.metric("ssop_cache_answers_not_stored_total", reason="unavailable") == 1
        assert under_test.metric("ssop_cache_lookups_total", outcome="unavailable") >= 1


async def test_cache_instance_that_comes_back_empty_stores_again(servers: Servers) -> None:
    _, cache = servers
    async with running_cache(*servers, local_bytes=0) as under_test:
        client = under_test.client()
        fence = (await client.admit("a", KEY)).fencing_token
        await client.commit(KEY, fence, answer("one"))
        cache.kill()
        await unavailable(client.lookup(KEY))
        cache.start()
        await eventually(lambda: is_up(under_test))
        assert (await client.lookup(KEY)).outcome == MISS
        second = await client.admit("b", KEY)
        assert second.outcome == LEASE
        assert second.fencing_token > fence
        await client.commit(KEY, second.fencing_token, answer("two"))
        assert (await client.admit("c", KEY)).answer.chunk == answer("two")


@pytest.mark.parametrize("version", EVERY_REDIS)
async def test_nothing_acknowledged_is_lost_by_kill_9(version: str) -> None:
    with redis_pair(version) as (state, cache):
        async with running_cache(state, cache, budget_tokens=10**6, budget_window_ms=MONTH_MS) as under_test:
            client = under_test.client()
            acknowledged: list[int] = []

            async def load() -> None:
                while True:
                    name = f"r{len(acknowledged)}"
                    await client.admit(name, tokens=3, lease_ms=60_000)
                    charged = await client.settle(name, 2)
                    acknowledged.append(charged)

            loading = asyncio.ensure_future(load())
            await eventually(lambda: len(acknowledged) >= 100)
            state.kill()
            with pytest.raises(MeshError):
                await loading
            state.start()
            await eventually(lambda: is_up(under_test))
            left = (await client.admit("after", tokens=0)).budget_left_tokens
            # The request that was under way may count: it was applied or not, and nobody was told.
            assert 10**6 - sum(acknowledged) - 3 <= left <= 10**6 - sum(acknowledged)
            assert await client.settle("r0", 2) == 0


async def test_leases_survive_a_restart_of_the_state_instance(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers) as under_test:
        client = under_test.client()
        lease = await client.admit("a", KEY, lease_ms=60_000)
        state.kill()
        await unavailable(client.admit("b", KEY))
        state.start()
        await eventually(lambda: is_up(under_test))
        await client.commit(KEY, lease.fencing_token, answer())
        assert (await client.admit("b", KEY)).outcome == HIT


async def test_fencing_tokens_rise_even_when_the_state_is_lost(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers) as under_test:
        client = under_test.client()
        before = (await client.admit("a", KEY)).fencing_token
        state.ask("FLUSHALL")
        assert (await client.admit("b", KEY)).fencing_token > before


async def test_eviction_of_answers_touches_no_lease(servers: Servers) -> None:
    _, cache = servers
    cache.ask("CONFIG", "SET", "maxmemory", "3mb")
    async with running_cache(*servers) as under_test:
        client = under_test.client()
        held = await client.admit("held", KEY, lease_ms=60_000)
        for n in range(2, 130):
            key = bytes([n]) * 32
            fence = (await client.admit(f"r{n}", key)).fencing_token
            await client.commit(key, fence, answer("x" * 50_000))
        assert cache.ask("INFO", "stats")["evicted_keys"] > 0
        await client.commit(KEY, held.fencing_token, answer())


async def test_full_state_refuses_and_still_settles(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers, budget_tokens=10**6, budget_window_ms=MONTH_MS) as under_test:
        client = under_test.client()
        await client.admit("a", tokens=50, lease_ms=60_000)
        state.ask("CONFIG", "SET", "maxmemory", "1")
        await unavailable(client.admit("b"))
        assert await client.settle("a", 20) == 20
        assert under_test.cache.state.is_up
        state.ask("CONFIG", "SET", "maxmemory", "32mb")
        assert (await client.admit("b", tokens=0)).budget_left_tokens == 10**6 - 20


async def test_cancelled_call_leaves_no_reply_for_the_next(servers: Servers) -> None:
    state, _ = servers
    async with running_cache(*servers, redis_connections=1, redis_timeout_ms=5000) as under_test:
        client = under_test.client()
        for n in range(20):
            call = asyncio.ensure_future(client.admit(f"c{n}", tokens=1000 + n))
            state.freeze()
            await asyncio.sleep(0.002)
            call.cancel()
            await asyncio.wait({call})
            state.thaw()
            assert await client.settle(f"unknown{n}", 5) == 0


async def wrong_role(state_url: str, cache_url: str) -> str:
    async with AsyncExitStack() as stack:
        settings = CacheSettings(state_url=state_url, cache_url=cache_url, redis_timeout_ms=2000)
        opened = open_cache(settings, CollectorRegistry(), stack)
        with pytest.raises(RoleError) as caught:
            await opened.roles.wait_until_right()
        return str(caught.value)


async def test_state_instance_that_evicts_is_refused() -> None:
    with RedisServer("cache") as one, RedisServer("cache") as other:
        assert "it would drop quotas and leases" in await wrong_role(one.url, other.url)


async def test_state_instance_without_aof_is_refused(servers: Servers) -> None:
    state, cache = servers
    state.ask("CONFIG", "SET", "appendonly", "no")
    assert "has no AOF" in await wrong_role(state.url, cache.url)


async def test_state_instance_that_syncs_late_is_refused(servers: Servers) -> None:
    state, cache = servers
    state.ask("CONFIG", "SET", "appendfsync", "everysec")
    assert "appendfsync everysec" in await wrong_role(state.url, cache.url)


async def test_cache_instance_that_never_evicts_is_refused(servers: Servers) -> None:
    state, _ = servers
    with RedisServer("state") as other:
        assert "does not evict" in await wrong_role(state.url, other.url)


async def test_one_instance_for_both_roles_is_refused(servers: Servers) -> None:
    state, _ = servers
    # The same server by another name, so that the settings' own check can't see it.
    link = state.socket.with_name("s")
    link.symlink_to(state.socket)
    assert "does not evict" in await wrong_role(state.url, f"unix://{link}")


async def test_one_instance_is_refused_whatever_it_says_of_itself(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = servers
    link = state.socket.with_name("s")
    link.symlink_to(state.socket)
    # As where CONFIG shows one thing to one user and another to the next.
    monkeypatch.setattr(RoleChecker, "check_cache", RoleChecker.check_state)
    assert "are one instance" in await wrong_role(state.url, f"unix://{link}")


async def test_instance_that_comes_back_in_the_wrong_role_is_not_used(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    state, _ = servers
    async with running_cache(*servers, probe_interval_ms=10) as under_test:
        client = under_test.client()
        state.kill()
        # One call may run into its bound, and then nobody knows yet that it is gone.
        for number in range(OPEN_AFTER):
            await unavailable(client.admit(f"a{number}"))
        state.role = "cache"
        state.start()
        await eventually(lambda: "came back in the wrong role" in caplog.text)
        await unavailable(client.admit("b"))
        state.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        state.ask("CONFIG", "SET", "appendonly", "yes")
        state.ask("CONFIG", "SET", "appendfsync", "always")
        await eventually(lambda: is_up(under_test))


async def test_caller_that_gets_no_connection_in_time_is_told_to_come_again(servers: Servers) -> None:
    state, _ = servers
    bounds: dict[str, Any] = {"redis_connections": 1, "redis_timeout_ms": 5000, "connection_wait_ms": 20}
    async with running_cache(*servers, **bounds) as under_test:
        client = under_test.client()
        await client.admit("a")
        state.freeze()
        held = [asyncio.ensure_future(client.admit(f"b{n}")) for n in range(SingleDeployment.calls_per_connection)]
        # Lets the first callers take the connection.
        await asyncio.sleep(0)
        with pytest.raises(MeshError) as caught:
            await client.admit("c")
        state.thaw()
        assert (caught.value.reason_name, caught.value.retry_after_ms) == ("OVERLOADED", 1000)
        await asyncio.gather(*held)
