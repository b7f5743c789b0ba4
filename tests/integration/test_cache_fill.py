"""A state that fills up: told before it refuses, and why once it does."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from helpers.cache_service import running_cache
from helpers.redis_server import RedisServer
from ssop_cache.core.fill import Fill
from ssop_chassis.errors import MeshError
from ssop_cli.checks import Check, run_checks
from ssop_cli.lock import hold_lock
from ssop_cli.places import Places
from ssop_cli.report import ChildReport, Report, write_report

_FILLING = "the state fills up"


@pytest.fixture
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """State and cache."""
    with RedisServer("state") as state, RedisServer("cache") as cache:
        yield state, cache


def fill(state: RedisServer, share: float) -> None:
    used = int(state.ask("INFO", "memory")["used_memory"])
    state.ask("CONFIG", "SET", "maxmemory", str(int(used / share)))


async def test_the_service_tells_how_full_the_state_is(servers: tuple[RedisServer, RedisServer]) -> None:
    async with running_cache(*servers) as under_test:
        await under_test.cache.fill.look()
        stats = await under_test.client().stats()
        assert stats.state_max_bytes == 32 * 2**20
        assert 0 < stats.state_used_bytes < stats.state_max_bytes
        assert under_test.metric("ssop_cache_state_max_bytes") == stats.state_max_bytes
        assert under_test.metric("ssop_cache_state_used_bytes") == stats.state_used_bytes


async def test_a_state_that_fills_up_is_told_once_for_each_rise(
    servers: tuple[RedisServer, RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum(_FILLING in record.message for record in caplog.records)

    async with running_cache(*servers) as under_test:
        watch = under_test.cache.fill
        counts = []
        with caplog.at_level(logging.WARNING):
            for share in (0.3, 0.85, 0.9, 0.3, 0.85):
                fill(servers[0], share)
                await watch.look()
                counts.append(told())
    assert counts == [0, 1, 1, 1, 2]


async def test_a_full_state_says_that_it_is_full(servers: tuple[RedisServer, RedisServer]) -> None:
    # Nothing but the request is to write: the level on the host does when it first looks at the log.
    async with running_cache(*servers, local_bytes=0) as under_test:
        servers[0].ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(MeshError, match="the state store is full") as caught:
            await under_test.client().admit("a")
        assert caught.value.reason_name == "STORE_UNAVAILABLE"
        assert under_test.metric("ssop_cache_store_errors_total", role="state", kind="full") == 1


async def test_a_state_that_is_gone_leaves_what_was_known(servers: tuple[RedisServer, RedisServer]) -> None:
    async with running_cache(*servers) as under_test:
        await under_test.cache.fill.look()
        known = under_test.cache.fill.fullest
        servers[0].kill()
        with pytest.raises((RedisError, OSError)):
            await under_test.cache.fill.look()
        assert known == under_test.cache.fill.fullest != Fill()


@pytest.fixture
def supervised(servers: tuple[RedisServer, RedisServer], tmp_path: Path) -> Iterator[Places]:
    """The state directory of a mesh that runs, as far as others see it."""
    places = Places(tmp_path, tmp_path)
    child = ChildReport("redis-state", "ready", f"unix:{servers[0].socket}")
    write_report(places.report, Report(os.getpid(), "ready", "", "", 0, children=[child]))
    with hold_lock(places.lock):
        yield places


def ask_doctor(places: Places) -> list[Check]:
    return [check for check in run_checks(places, places.state) if check.name == "state"]


@pytest.mark.parametrize(("share", "state"), [(0.3, "ok"), (0.85, "lacks")])
def test_doctor_tells_of_a_state_before_it_is_full(
    servers: tuple[RedisServer, RedisServer], supervised: Places, share: float, state: str
) -> None:
    fill(servers[0], share)
    (check,) = ask_doctor(supervised)
    assert (check.state, "once it is full" in check.detail) == (state, state == "lacks")


def test_doctor_tells_of_a_state_that_does_not_answer(
    servers: tuple[RedisServer, RedisServer], supervised: Places
) -> None:
    servers[0].kill()
    (check,) = ask_doctor(supervised)
    assert (check.state, "does not answer" in check.detail) == ("lacks", True)


def test_doctor_says_nothing_of_a_mesh_that_does_not_run(tmp_path: Path) -> None:
    assert ask_doctor(Places(tmp_path, tmp_path)) == []
