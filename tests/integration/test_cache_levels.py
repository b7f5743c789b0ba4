"""Cache services over the same Redis, each with a level of its own: one key, and a change in either reaches both."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.cache_service import HIT, LEASE, MISS, CacheUnderTest, answer, memory_peer, running_cache
from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop.v1.mesh_pb2 import CacheLevel
from ssop_cache.core.changes import Cursor, read_changes
from ssop_cache.core.keys import Layout
from ssop_cache.core.local import LocalAnswer
from ssop_cache.local_disk import Disk, DiskError
from ssop_cache.main import open_cache
from ssop_cache.settings import CacheSettings
from ssop_chassis.errors import MeshError
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

Servers = tuple[RedisServer, RedisServer]
KEY, OTHER = b"\1" * 32, b"\2" * 32
LOCAL, SHARED = CacheLevel.CACHE_LEVEL_LOCAL, CacheLevel.CACHE_LEVEL_SHARED
SYNC_MS = 10
STALE_S = 60.0
"""A level that heard of no changes for a second asks Redis; so does one whose process is held up for that long."""


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


def level_of(host: CacheUnderTest) -> Any:
    local = host.cache.answers.local
    assert local is not None
    return local


@asynccontextmanager
async def host(servers: Servers, *, stale_s: float = STALE_S, **settings: Any) -> AsyncIterator[CacheUnderTest]:
    """A cache service whose level follows the log, and is believed for `stale_s` after it has looked."""
    async with running_cache(*servers, local_sync_ms=SYNC_MS, **settings) as running:
        level_of(running)._stale_s = stale_s
        await eventually(lambda: level_of(running).is_synced)
        yield running


@asynccontextmanager
async def host_alone(servers: Servers, directory: Path, **settings: Any) -> AsyncIterator[CacheUnderTest]:
    """A cache service whose Redis is gone, so that nothing waits for it."""
    opened = CacheSettings(
        state_url=servers[0].url,
        cache_url=servers[1].url,
        local_directory=directory,
        local_sync_ms=SYNC_MS,
        is_role_checked=False,
        **settings,
    )
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        cache = open_cache(opened, registry, stack)
        running = CacheUnderTest(cache, registry, memory_peer(cache))
        await eventually(lambda: len(level_of(running).answers) == 1)
        yield running


async def until_missed(host: CacheUnderTest) -> None:
    async with asyncio.timeout(60):
        while (await host.client().lookup(KEY)).outcome != MISS:
            await asyncio.sleep(0.01)


async def told(*hosts: CacheUnderTest) -> None:
    """Every host has applied all that was said."""
    await eventually(lambda: not any(level_of(one)._pending for one in hosts))
    last = (await hosts[0].cache.state.run(read_changes(Cursor(last=2**53))))[2]
    await eventually(lambda: all(level_of(one)._cursor.last == last for one in hosts))


async def test_one_key_hits_at_both_levels_with_the_same_bytes(servers: Servers) -> None:
    async with host(servers) as here, running_cache(*servers, local_bytes=0) as plain:
        await here.client().store("a", KEY, answer("one"))
        local, shared = await here.client().lookup(KEY), await plain.client().lookup(KEY)
        assert (local.answer.level, shared.answer.level) == (LOCAL, SHARED)
        assert local.answer.chunk == shared.answer.chunk == answer("one")


@pytest.mark.parametrize("version", EVERY_REDIS)
async def test_answer_of_another_host_is_taken_from_redis_once(version: str) -> None:
    with redis_pair(version) as servers:
        async with host(servers) as here, host(servers) as there:
            await here.client().store("a", KEY, answer("one"))
            levels = [(await there.client().lookup(KEY)).answer.level for _ in range(2)]
            assert levels == [SHARED, LOCAL]
            stats = await there.client().stats()
            assert (stats.local_hits, stats.shared_hits, stats.local_answers) == (1, 1, 1)
            assert there.metric("ssop_cache_hits_total", level="local") == 1


async def test_host_that_rests_hears_what_has_changed_before_it_answers(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssop_cache.local._IDLE_S", 0.0)
    async with host(servers) as here, host(servers) as there:
        await here.client().store("a", KEY, answer("one"))
        await there.client().lookup(KEY)
        await eventually(lambda: level_of(there).is_resting)
        assert (await there.client().lookup(KEY)).answer.level == LOCAL
        await eventually(lambda: level_of(there).is_resting)
        await here.client().flush()
        assert (await there.client().lookup(KEY)).outcome == MISS


@pytest.mark.parametrize("version", EVERY_REDIS)
async def test_flush_reaches_redis_and_every_host(version: str) -> None:
    with redis_pair(version) as servers:
        async with host(servers) as here, host(servers) as there:
            await here.client().store("a", KEY, answer("mine"))
            await here.client("umbrella").store("b", KEY, answer("theirs"))
            for client in (there.client(), there.client("umbrella")):
                assert (await client.lookup(KEY)).outcome == HIT
            await here.client().flush()
            assert (await here.client().lookup(KEY)).outcome == MISS
            await told(here, there)
            assert (await there.client().lookup(KEY)).outcome == MISS
            assert (await there.client("umbrella").lookup(KEY)).answer.chunk == answer("theirs")


async def test_one_answer_is_dropped_everywhere(servers: Servers) -> None:
    async with host(servers) as here, host(servers) as there:
        for key in (KEY, OTHER):
            await here.client().store(f"r{key[0]}", key, answer("one"))
            await there.client().lookup(key)
        await there.client().flush(KEY)
        await told(here, there)
        outcomes = [(await one.client().lookup(key)).outcome for one in (here, there) for key in (KEY, OTHER)]
        assert outcomes == [MISS, HIT, MISS, HIT]


async def test_newer_answer_replaces_the_one_on_another_host(servers: Servers) -> None:
    async with host(servers) as here, host(servers) as there:
        await here.client().store("a", KEY, answer("old"))
        await there.client().lookup(KEY)
        await asyncio.sleep(0.002)  # `store` asks for an answer of at most a millisecond
        await there.client().store("b", KEY, answer("new"))
        await told(here, there)
        assert (await here.client().lookup(KEY)).answer.chunk == answer("new")


async def test_first_answer_of_a_key_is_told_to_nobody(servers: Servers) -> None:
    async with host(servers) as here:
        before = servers[0].ask("XLEN", "ssop:{changes}:log")
        await here.client().store("a", KEY, answer("one"))
        await told(here)
        assert servers[0].ask("XLEN", "ssop:{changes}:log") == before


async def test_generation_that_began_before_a_flush_stores_nothing(servers: Servers) -> None:
    async with host(servers) as here:
        client = here.client()
        fence = (await client.admit("a", KEY)).fencing_token
        await client.flush()
        await client.commit(KEY, fence, answer("before"))
        assert (await client.lookup(KEY)).outcome == MISS
        assert here.metric("ssop_cache_answers_not_stored_total", reason="superseded") == 1
        assert (await client.admit("b", KEY)).outcome == LEASE


async def test_answer_lapses_at_both_levels(servers: Servers) -> None:
    async with host(servers) as here, host(servers) as there:
        for ttl_ms in (150, 600, 2_400, 9_600):
            await here.client().store(f"ttl-{ttl_ms}", KEY, answer("one"), ttl_ms=ttl_ms)
            levels = [(await there.client().lookup(KEY)).answer.level for _ in range(2)]
            if levels == [SHARED, LOCAL]:
                break
        # A machine that has much to do may take longer to look twice than the shorter ones last.
        assert levels == [SHARED, LOCAL]
        for one in (here, there):
            await until_missed(one)


async def test_level_survives_both_redis_and_a_restart(servers: Servers, tmp_path: Path) -> None:
    async with host(servers, local_directory=tmp_path) as here:
        await here.client().store("a", KEY, answer("kept"))
        await told(here)
    for server in servers:
        server.kill()
    async with host_alone(servers, tmp_path) as here:
        found = await here.client().lookup(KEY)
        assert (found.answer.chunk, found.answer.level) == (answer("kept"), LOCAL)
        assert not (await here.client().stats()).is_local_synced


async def test_level_that_has_not_heard_for_too_long_serves_nothing(servers: Servers, tmp_path: Path) -> None:
    async with host(servers, local_directory=tmp_path) as here:
        await here.client().store("a", KEY, answer("kept"))
        await told(here)
    for server in servers:
        server.kill()
    async with host_alone(servers, tmp_path, local_unsynced_ms=0) as here:
        with pytest.raises(MeshError, match="does not answer"):
            await here.client().lookup(KEY)


async def test_flush_while_a_host_was_down_reaches_it(servers: Servers, tmp_path: Path) -> None:
    async with host(servers, local_directory=tmp_path) as here:
        await here.client().store("a", KEY, answer("kept"))
        await here.client("umbrella").store("b", KEY, answer("theirs"))
        await told(here)
    async with host(servers) as there:
        await there.client().flush()
    async with host(servers, local_directory=tmp_path) as here:
        servers[1].kill()  # only the level on the host can answer
        with pytest.raises(MeshError):
            await here.client().lookup(KEY)
        assert (await here.client("umbrella").lookup(KEY)).answer.level == LOCAL


async def test_host_forgets_all_when_the_log_was_lost(servers: Servers) -> None:
    state, _ = servers
    async with host(servers) as here:
        await here.client().store("a", KEY, answer("one"))
        await told(here)
        state.ask("FLUSHALL")
        await eventually(lambda: here.metric("ssop_cache_local_faults_total", kind="gap") == 1)
        assert (await here.client().stats()).local_answers == 0
        assert (await here.client().lookup(KEY)).answer.level == SHARED


@pytest.mark.parametrize("version", EVERY_REDIS)
async def test_flushall_in_redis_reaches_every_host_those_that_were_away_too(version: str, tmp_path: Path) -> None:
    with redis_pair(version) as servers:
        async with host(servers, local_directory=tmp_path) as away:
            await away.client().store("a", KEY, answer("one"))
            await told(away)
        async with host(servers) as here, host(servers) as there:
            for one in (here, there):
                assert (await one.client().lookup(KEY)).outcome == HIT
                await eventually(lambda one=one: level_of(one)._epoch is not None)  # type: ignore[misc]
            servers[1].ask("FLUSHALL")
            for one in (here, there):
                await until_missed(one)
            # One of them has told it, for those who did not see it.
            await told(here, there)
            assert (await here.client().store("b", OTHER, answer("two"))) > 0
            assert (await here.client().lookup(OTHER)).answer.level == LOCAL
        async with host(servers, local_directory=tmp_path) as away:
            await told(away)
            assert (await away.client().lookup(KEY)).outcome == MISS


async def test_cache_instance_that_was_started_again_costs_no_host_its_answers(servers: Servers) -> None:
    async with host(servers) as here:
        await here.client().store("a", KEY, answer("one"))
        await eventually(lambda: level_of(here)._epoch is not None)
        before = level_of(here)._epoch
        servers[1].kill()
        servers[1].start()
        await eventually(lambda: level_of(here)._epoch != before)
        assert (await here.client().lookup(KEY)).answer.level == LOCAL
        assert here.metric("ssop_cache_local_faults_total", kind="flush") == 0


async def test_flush_under_load_leaves_nothing_that_was_stored_before(servers: Servers) -> None:
    keys = [bytes([number]) * 32 for number in range(8)]
    async with host(servers) as here, host(servers) as there:
        for turn in range(6):
            for number, key in enumerate(keys):
                await here.client().store(f"t{turn}-{number}", key, answer(f"turn {turn}"))
            is_flushed = asyncio.Event()

            async def read(one: CacheUnderTest, is_flushed: asyncio.Event = is_flushed) -> int:
                found = 0
                while not is_flushed.is_set():
                    for key in keys:
                        found += (await one.client().lookup(key)).outcome == HIT
                return found

            reading = [asyncio.ensure_future(read(one)) for one in (here, there) for _ in range(3)]
            await asyncio.sleep(0)
            await there.client().flush()
            await told(here, there)
            is_flushed.set()
            assert sum(await asyncio.gather(*reading)) > 0
            left = [(await one.client().lookup(key)).outcome for one in (here, there) for key in keys]
            assert set(left) == {MISS}


async def test_disk_that_hangs_and_fails_holds_nobody_up(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    writes = []

    def hang(self: Disk, changes: Any, cursor: Any, *, is_all: bool) -> None:
        writes.append(is_all)
        gate.wait(60)
        raise DiskError("scripted")

    async with host(servers, local_directory=tmp_path) as here, host(servers) as there:
        monkeypatch.setattr(Disk, "write", hang)
        monkeypatch.setattr("ssop_cache.local._REPEAT_S", 0.01)
        await here.client().store("a", KEY, answer("one"))
        await eventually(lambda: bool(writes))
        # What the disk does not take is served and flushed as ever.
        assert (await here.client().lookup(KEY)).answer.level == LOCAL
        await there.client().flush()
        await eventually(lambda: len(level_of(here).answers) == 0)
        assert (await here.client().lookup(KEY)).outcome == MISS
        gate.set()
        await eventually(lambda: here.metric("ssop_cache_local_faults_total", kind="write") >= 1)
        await here.client().store("b", OTHER, answer("two"))
        monkeypatch.undo()
        await eventually(lambda: not level_of(here)._is_all_dirty and not level_of(here)._dirty)
    async with host(servers, local_directory=tmp_path) as here:
        assert [name[1] for name in level_of(here).answers] == [OTHER]


async def test_service_that_stops_while_it_writes_leaves_a_folder_that_is_true(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Disk.write
    is_writing = threading.Event()

    def take_time(self: Disk, changes: Any, cursor: Any, *, is_all: bool) -> None:
        is_writing.set()
        # As long as a disk takes that is busy.
        time.sleep(0.05)
        write(self, changes, cursor, is_all=is_all)

    keys = [bytes([number]) * 32 for number in range(6)]
    async with host(servers, local_directory=tmp_path) as here:
        for number, key in enumerate(keys):
            await here.client().store(f"a{number}", key, answer("one"))
        await told(here)
        await eventually(lambda: not level_of(here)._dirty)
        # Batches of one entry, so that the end comes between two of them.
        monkeypatch.setattr("ssop_cache.local._BATCH_BYTES", 1)
        monkeypatch.setattr(Disk, "write", take_time)
        is_writing.clear()
        await here.client().flush()
        await eventually(is_writing.is_set)
        # Its last write, with the number of the last change, comes after batches that were never written.
        await here.client().store("last", keys[0], answer("last"))
    monkeypatch.undo()
    async with host(servers, local_directory=tmp_path) as here:
        assert [name[1] for name in level_of(here).answers] == [keys[0]]


async def test_host_that_stopped_looking_does_not_count_as_told(servers: Servers) -> None:
    async with host(servers, stale_s=1.0) as here:
        await here.client().store("a", KEY, answer("one"))
        level_of(here)._tasks[0].cancel()
        await eventually(lambda: not level_of(here).is_synced)
        assert (await here.client().lookup(KEY)).answer.level == SHARED


async def test_hit_on_the_host_needs_no_cache_instance(servers: Servers) -> None:
    async with host(servers) as here:
        await here.client().store("a", KEY, answer("one"))
        servers[1].kill()
        found = await here.client().admit("b", KEY)
        assert (found.outcome, found.answer.level) == (HIT, LOCAL)


async def test_without_news_redis_is_asked_first(servers: Servers) -> None:
    state, cache = servers
    async with host(servers, stale_s=1.0, redis_timeout_ms=1_000) as here:
        await here.client().store("a", KEY, answer("one"))
        state.freeze()
        await eventually(lambda: not level_of(here).is_synced)
        assert (await here.client().lookup(KEY)).answer.level == SHARED
        cache.freeze()
        assert (await here.client().lookup(KEY)).answer.level == LOCAL


async def test_frozen_redis_keeps_nobody_waiting_whose_answer_the_host_has(servers: Servers) -> None:
    async with host(servers, stale_s=1.0, redis_timeout_ms=2_000) as here:
        client = here.client()
        await client.store("a", KEY, answer("one"))
        for server in servers:
            server.freeze()
        await eventually(lambda: not level_of(here).is_synced)
        before = here.metric("ssop_cache_store_errors_total", role="cache", kind="timeout")
        costs_s = []
        for _ in range(20):
            started_s = time.monotonic()
            assert (await client.lookup(KEY)).answer.level == LOCAL
            costs_s.append(time.monotonic() - started_s)
        # One of them waited for an eighth of the bound, and asked on beside the others.
        assert max(costs_s) < stretched(1)
        assert sorted(costs_s)[15] < stretched(0.05)

        async def is_noticed() -> bool:
            await client.lookup(KEY)
            return not here.cache.cache.is_up

        async with asyncio.timeout(60):
            while not await is_noticed():
                await asyncio.sleep(0.01)
        assert here.metric("ssop_cache_store_errors_total", role="cache", kind="timeout") - before <= 3


async def test_what_redis_no_longer_has_is_not_served_by_a_host_without_news(servers: Servers) -> None:
    state, cache = servers
    async with host(servers, stale_s=1.0) as here:
        await here.client().store("a", KEY, answer("one"))
        state.freeze()
        await eventually(lambda: not level_of(here).is_synced)
        cache.ask("FLUSHALL")
        assert (await here.client().lookup(KEY)).outcome == MISS


async def test_nothing_but_whole_answers_reaches_the_host(servers: Servers) -> None:
    async with host(servers) as here:
        client = here.client()
        fence = (await client.admit("a", KEY)).fencing_token
        with pytest.raises(MeshError):
            await client.commit(KEY, fence, answer("cut")[:-1])
        fence = (await client.admit("b", OTHER)).fencing_token
        await client.commit(OTHER, fence, b"", is_complete=False)
        assert (await client.stats()).local_answers == 0


async def test_record_under_a_wrong_name_is_not_served(servers: Servers) -> None:
    async with host(servers) as here:
        await here.client().store("a", KEY, answer("one"))
        local = level_of(here)
        layout = Layout(WIRE_VERSION, CODEC_VERSION)
        record = local.answers.peek((layout.of_tenant("acme").tag, KEY)).record
        name = (layout.of_tenant("umbrella").tag, KEY)
        local.put(name, LocalAnswer(1, 0, 2**53, record), local.changes, False)
        assert (await here.client("umbrella").lookup(KEY)).outcome == MISS
        assert here.metric("ssop_cache_answers_unusable_total") == 1
