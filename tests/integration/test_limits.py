"""Rate limits over real Redis: killed, back again, and dynamic."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.cache_service import CacheUnderTest, running_cache
from helpers.eventually import eventually
from helpers.redis_server import RedisServer, redis_pair
from helpers.scripted_mesh import SECRET, Answer, Mesh, R, ask, reason, run_router
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.memory import MemoryPeer
from ssop_router.limits import Limits


@asynccontextmanager
async def run_with_cache(
    state: RedisServer, cache: RedisServer, router: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Mesh, CacheUnderTest]]:
    """A router and a cache service on real Redis."""
    async with running_cache(state, cache, **settings) as under_test:
        peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET), address="cache")
        async with run_router(
            cache_peer=peer, admission_timeout_ms=10_000, settle_timeout_ms=10_000, **(router or {})
        ) as mesh:
            yield mesh, under_test


async def ask_many(mesh: Mesh, number: int) -> list[Answer]:
    answers = [await mesh.generate(ask(policy="no_cache")) for _ in range(number)]
    for answer in answers:
        assert answer.error is None or reason(answer) == R.ERROR_REASON_RATE_LIMITED
    return answers


def admitted(answers: list[Answer]) -> int:
    return sum(answer.error is None for answer in answers)


async def test_limits_hold_by_shares_while_redis_is_dead_and_together_once_it_is_back() -> None:
    with redis_pair() as (state, cache):
        async with run_with_cache(
            state,
            cache,
            {"routers": 2, "unchecked_budget": "serve", "promise_wait_ms": 0},
            max_rps=0.01,
            burst=6,
            budget_tokens=10_000_000,
            redis_timeout_ms=500,
        ) as (mesh, _):
            assert admitted(await ask_many(mesh, 2)) == 2
            state.kill()
            answers = await ask_many(mesh, 6)
            assert admitted(answers) == 3
            assert answers[0].status.unavailable == ["cache", "rate_limit", "token_budget"]
            assert mesh.metric("ssop_router_limits_local") == 1
            state.start()
            started_s = time.monotonic()

            async def is_shared() -> bool:
                await mesh.generate(ask(policy="no_cache"))
                return mesh.metric("ssop_router_limits_local") == 0

            while not await is_shared():
                assert time.monotonic() - started_s < 60, "the shared limits do not come back"
            # What the store kept on disk counts: of the six that may come at once, two came before.
            assert admitted(await ask_many(mesh, 6)) <= 3


async def test_a_router_that_starts_while_redis_is_dead_learns_the_limit() -> None:
    with redis_pair() as (state, cache):
        async with run_with_cache(state, cache, max_rps=0.01, burst=2) as (mesh, _):
            state.kill()
            assert admitted(await ask_many(mesh, 5)) == 2


async def test_a_frozen_redis_is_no_way_around_the_limit() -> None:
    with redis_pair() as (state, cache):
        async with run_with_cache(state, cache, max_rps=0.01, burst=2, redis_timeout_ms=50) as (mesh, _):
            state.freeze()
            try:
                assert admitted(await ask_many(mesh, 6)) == 2
            finally:
                state.thaw()


async def test_a_dynamic_limit_follows_the_share_that_routers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_pair() as (state, cache):
        async with run_with_cache(state, cache, max_rps=0.04, min_rps=0.001, burst=8, rate_limit_mode="dynamic") as (
            mesh,
            under_test,
        ):
            assert under_test.metric("ssop_cache_rate_limit_rps") == 0
            assert admitted(await ask_many(mesh, 1)) == 1
            assert under_test.metric("ssop_cache_rate_limit_rps") == 0.04
            monkeypatch.setattr(Limits, "share", lambda *_: 0.25)
            # Seven of eight are left at the full rate; at a quarter, the burst is a quarter too.
            assert admitted(await ask_many(mesh, 6)) == 1
            assert under_test.metric("ssop_cache_rate_limit_rps") == 0.01


async def test_a_static_limit_ignores_load(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_pair() as (state, cache):
        async with run_with_cache(state, cache, max_rps=0.01, burst=4) as (mesh, under_test):
            monkeypatch.setattr(Limits, "share", lambda *_: 0.01)
            assert admitted(await ask_many(mesh, 6)) == 4
            assert under_test.metric("ssop_cache_rate_limit_rps") == 0.01
            await eventually(mesh.is_quiet)
