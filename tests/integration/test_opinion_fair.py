"""Several tenants on one queue: a flood of one holds nobody up, and fills nobody's room. By counts, on a real Redis."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.eventually import eventually
from helpers.opinion import (
    GOOD,
    KEY_ID,
    TENANT,
    ScriptedAnalyst,
    bodies,
    emptied,
    make_settings,
    make_tenant,
    parts,
    posts,
    running,
    signed,
    sums,
    working,
)
from helpers.redis_server import RedisServer
from ssop_opinion.core.payload import write_payload
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis
from ssop_opinion.intake import Origin
from ssop_opinion.ports import MeshAwayError, OnField, Query
from ssop_opinion.process import OpinionProcess
from ssop_opinion.queue import GROUP, POSTS, QUEUED, REFUSED
from ssop_opinion.webhook import PATH

QUIET = "quiet"


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer("state") as server:
        yield server


@pytest.fixture
def redis(shared: RedisServer) -> RedisServer:
    shared.ask("FLUSHALL")
    return shared


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a process with two tenants."""
    make_settings(tmp_path, "redis://nowhere")
    make_tenant(tmp_path / "tenants", QUIET)
    return tmp_path


class GatedAnalyst(ScriptedAnalyst):
    """Ends as many analyses as a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Semaphore(0)

    def has_begun(self, count: int) -> bool:
        """Whether as many analyses have begun."""
        return len(self.seen) == count

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        self.seen.append(post)
        await self.gate.acquire()
        return GOOD


async def append(process: OpinionProcess, made: list[Post]) -> Counter[int]:
    """Append posts of one tenant; how many had which outcome."""
    appended = await process.intake.append(made, Origin(made[0].tenant, "crm", "webhook"))
    return Counter(appended.outcomes)


async def stored(process: OpinionProcess, tenant: str) -> list[str]:
    """Keys of a tenant's records in the sink."""
    page = await process.sink.find(Query(tenant, limit=10_000))
    assert page.total == len(page.records)
    return sorted(record.key for record in page.records)


def keys(made: list[Post]) -> list[str]:
    return sorted(post.key for post in made)


async def eventually_stored(process: OpinionProcess, made: list[Post]) -> None:
    """Return when the sink has the posts, and no others, of their tenant."""
    async with asyncio.timeout(90):
        while await stored(process, made[0].tenant) != keys(made):
            await asyncio.sleep(0.02)


async def test_a_post_of_another_tenant_is_next_whatever_a_flood_has_queued(folder: Path, redis: RedisServer) -> None:
    analyst = GatedAnalyst()
    flood, quiet = posts(300), posts(5, tenant=QUIET)
    async with (
        running(folder, redis, parts(analyst), max_analyses=4, claim_ms=600_000) as (process, _),
        working(process),
    ):
        await append(process, flood)
        await eventually(partial(analyst.has_begun, 4))
        await append(process, quiet)
        # Each analysis that ends lets one begin.
        for begun in range(5, 16):
            analyst.gate.release()
            await eventually(partial(analyst.has_begun, begun))
        tenants = [post.tenant for post in analyst.seen]
        for _ in range(400):
            analyst.gate.release()
    # What had begun, at most one that was read already, and then one each by turns.
    assert tenants.index(QUIET) <= 4 + 1
    assert tenants[:15].count(QUIET) == 5


async def test_a_tenant_that_the_mesh_refuses_holds_nobody_up(folder: Path, redis: RedisServer) -> None:
    is_refused = True

    def answer(post: Post) -> Analysis:
        if post.tenant == TENANT and is_refused:
            raise MeshAwayError("over its limit", 0.01, is_of_tenant=True)
        return GOOD

    analyst = ScriptedAnalyst(answer)
    flood, quiet = posts(50), posts(20, tenant=QUIET)
    async with running(folder, redis, parts(analyst), max_analyses=4) as (process, registry), working(process):
        await append(process, flood)
        await eventually(lambda: registry.get_sample_value("ssop_opinion_away", {"what": "tenant"}) == 1)
        await append(process, quiet)
        await eventually(lambda: registry.get_sample_value("ssop_opinion_post_seconds_count") == 20)
        assert await stored(process, QUIET) == keys(quiet)
        assert not registry.get_sample_value("ssop_opinion_away", {"what": "mesh"})
        is_refused = False
        await emptied(process)
        assert await stored(process, TENANT) == keys(flood)
        assert registry.get_sample_value("ssop_opinion_away", {"what": "tenant"}) == 0


async def test_a_post_that_alone_is_refused_holds_no_other_of_its_tenant_up(folder: Path, redis: RedisServer) -> None:
    flood = posts(50)

    def answer(post: Post) -> Analysis:
        if post.id == flood[0].id:
            raise MeshAwayError("no such collection", 0.01, is_of_tenant=True)
        return GOOD

    async with running(folder, redis, parts(ScriptedAnalyst(answer)), max_analyses=4) as (process, _), working(process):
        await append(process, flood)
        await eventually_stored(process, flood[1:])


async def test_a_tenant_that_is_refused_is_asked_for_by_one_post_at_a_time(folder: Path, redis: RedisServer) -> None:
    is_over, most = False, 0

    class Counting(ScriptedAnalyst):
        running = 0

        async def analyse(self, post: Post, on_field: OnField) -> Analysis:
            nonlocal most
            self.seen.append(post)
            if is_over:
                return GOOD
            self.running += 1
            if len(self.seen) > 4:
                most = max(most, self.running)
            try:
                await asyncio.sleep(0)
                raise MeshAwayError("over its limit", 0.01, is_of_tenant=True)
            finally:
                self.running -= 1

    analyst = Counting()
    async with running(folder, redis, parts(analyst), max_analyses=4) as (process, _), working(process):
        await append(process, posts(50))
        await eventually(lambda: len(analyst.seen) > 8)
        is_over = True
        await emptied(process)
    assert most == 1


async def test_a_flood_leaves_room_in_the_queue_for_others(folder: Path, redis: RedisServer) -> None:
    async with running(folder, redis, parts(ScriptedAnalyst()), max_queued=90) as (process, registry):
        assert await append(process, posts(200)) == {QUEUED: 80, REFUSED: 120}
        assert await append(process, posts(5, tenant=QUIET)) == {QUEUED: 5}
    assert registry.get_sample_value("ssop_opinion_tenant_refused_total", {"tenant": TENANT}) == 120


async def test_large_posts_of_one_leave_room_for_others(folder: Path, redis: RedisServer) -> None:
    flood = [Post(TENANT, "crm", str(n), str(n) + "x" * 1_000, "webhook", 1) for n in range(150)]
    quiet = [Post(QUIET, "crm", str(n), str(n) + "x" * 1_500, "webhook", 1) for n in range(5)]
    async with running(folder, redis, parts(ScriptedAnalyst()), max_queued_bytes=100_000) as (process, _):
        assert (await append(process, flood))[REFUSED] > 60
        assert await append(process, quiet) == {QUEUED: 5}


async def test_room_that_was_taken_is_given_back(folder: Path, redis: RedisServer) -> None:
    async with running(folder, redis, parts(ScriptedAnalyst()), max_queued=90) as (process, _), working(process):
        for seed in range(3):
            assert (await append(process, posts(40, seed=seed)))[QUEUED] == 40
            await append(process, posts(10, tenant=QUIET, seed=seed))
            await emptied(process)
    assert sums(redis) == {0}


async def test_oldest_drops_posts_of_who_has_too_many(folder: Path, redis: RedisServer) -> None:
    flood, quiet = posts(12), posts(1, tenant=QUIET)
    async with running(folder, redis, parts(ScriptedAnalyst()), max_queued=9, overflow="oldest") as (process, _):
        await append(process, flood[:8])
        await append(process, quiet)
        appended = await process.intake.append(flood[8:], Origin(TENANT, "crm", "webhook"))
        assert (list(appended.outcomes), appended.dropped) == ([QUEUED] * 4, 4)
        left = [entry.post for entry in await process.queue.read(20, 100)]
    assert sorted(post.key for post in left if post is not None) == keys([*flood[4:], *quiet])


async def test_oldest_makes_room_for_a_tenant_that_comes_when_one_has_filled_all(
    tmp_path: Path, redis: RedisServer
) -> None:
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_queued=90, overflow="oldest") as (process, _):
        await append(process, posts(90))
        process.queue.admit([QUIET])
        appended = await process.intake.append(posts(5, tenant=QUIET), Origin(QUIET, "crm", "webhook"))
        assert (list(appended.outcomes), appended.dropped) == ([QUEUED] * 5, 5)
        await process.queue.refresh()
        assert process.queue.lengths == {TENANT: 85, QUIET: 5}


async def test_who_has_most_is_looked_for_once_a_call(tmp_path: Path, redis: RedisServer) -> None:
    """Of hundreds of tenants, for each of hundreds of posts, Redis would serve nobody else for long."""
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_queued=90, overflow="oldest") as (process, _):
        await append(process, posts(90))
        process.queue.admit([QUIET])
        redis.ask("SADD", "{ssop.opinion}:tenants", *(f"other-{number}" for number in range(50)))
        redis.ask("CONFIG", "RESETSTAT")
        await process.intake.append(posts(5, tenant=QUIET), Origin(QUIET, "crm", "webhook"))
        looks = redis.ask("INFO", "commandstats")["cmdstat_xlen"]["calls"]
    assert 50 < looks < 100


async def test_posts_of_the_stream_that_all_shared_are_read_until_it_is_empty(folder: Path, redis: RedisServer) -> None:
    """An upgrade: what a version with one stream has queued, and what one of its workers had begun."""
    made = [*posts(20), *posts(20, tenant=QUIET)]
    redis.ask("XGROUP", "CREATE", POSTS, GROUP, "0", "MKSTREAM")
    for post in made:
        redis.ask("XADD", POSTS, "*", "post", write_payload(post), "seen", "", "tenant", post.tenant)
        redis.ask("INCRBY", "{ssop.opinion}:bytes", len(write_payload(post)))
    redis.ask("XREADGROUP", "GROUP", GROUP, "a-worker-that-died", "COUNT", 10, "STREAMS", POSTS, ">")
    more = posts(5, seed=1)
    async with running(folder, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
        assert (await process.queue.sizes())[0] == 40
        await append(process, more)
        await emptied(process)
        assert await stored(process, TENANT) + await stored(process, QUIET) == keys(made[:20] + more) + keys(made[20:])
    assert sums(redis) == {0}


async def test_posts_with_the_same_id_in_two_streams_are_two(folder: Path, redis: RedisServer) -> None:
    made = [*posts(5), *posts(5, tenant=QUIET)]
    async with running(folder, redis, parts(ScriptedAnalyst())) as (process, _):
        for number, post in enumerate(made):
            entry = (f"{POSTS}:{post.tenant}", f"1-{number % 5 + 1}")
            redis.ask("XADD", *entry, "post", write_payload(post), "seen", "", "tenant", post.tenant)
        await process.queue.refresh()
        async with working(process):
            await emptied(process)
        assert await stored(process, TENANT) + await stored(process, QUIET) == keys(made[:5]) + keys(made[5:])


async def test_posts_of_a_dead_worker_are_taken_over_from_each_stream(folder: Path, redis: RedisServer) -> None:
    made, quiet = posts(20), posts(20, tenant=QUIET)
    async with running(folder, redis, parts(ScriptedAnalyst())) as (dead, _):
        await append(dead, made)
        await append(dead, quiet)
        assert len(await dead.queue.read(100, 100)) == 40
    async with running(folder, redis, parts(ScriptedAnalyst())) as (process, registry), working(process):
        await emptied(process)
        assert await stored(process, TENANT) + await stored(process, QUIET) == keys(made) + keys(quiet)
    assert registry.get_sample_value("ssop_opinion_taken_over_total") == 40


async def test_what_many_others_hold_hides_nothing_from_who_takes_over(folder: Path, redis: RedisServer) -> None:
    """XAUTOCLAIM looks at ten times as many entries as it may take, and no further."""
    async with (
        running(folder, redis, parts(ScriptedAnalyst()), claim_ms=60_000) as (alive, _),
        running(folder, redis, parts(ScriptedAnalyst()), claim_ms=60_000) as (dead, _),
        running(folder, redis, parts(ScriptedAnalyst()), claim_ms=60_000) as (process, _),
    ):
        await append(alive, posts(40))
        assert len(await alive.queue.read(39, 100)) == 39
        left = await dead.queue.read(1, 100)
        await dead.queue.release(left)
        claimed: list[Any] = []
        for _ in range(6):
            claimed += await process.queue.claim(1)
    assert [entry.id for entry in claimed] == [left[0].id]


async def test_redis_away_while_two_tenants_are_worked_on_loses_nothing(folder: Path, redis: RedisServer) -> None:
    made, quiet = posts(200), posts(100, tenant=QUIET)
    async with running(folder, redis, parts(ScriptedAnalyst()), batch=10) as (process, _), working(process):
        await append(process, made)
        await append(process, quiet)
        redis.kill()
        redis.start()
        await emptied(process)
        assert await stored(process, TENANT) + await stored(process, QUIET) == keys(made) + keys(quiet)


async def test_an_emptied_redis_is_used_again_by_all(folder: Path, redis: RedisServer) -> None:
    made, quiet = posts(5), posts(5, tenant=QUIET)
    async with running(folder, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
        redis.ask("FLUSHALL")
        await append(process, made)
        await append(process, quiet)
        await emptied(process)
        assert await stored(process, TENANT) + await stored(process, QUIET) == keys(made) + keys(quiet)


async def test_webhooks_of_one_leave_room_for_others(folder: Path, redis: RedisServer) -> None:
    """Requests whose bodies do not come, under the name of a key, and one of another tenant."""
    silent = asyncio.Event()
    statuses: list[int] = []

    async def never() -> Any:
        await silent.wait()
        return {"type": "http.disconnect"}

    async def note(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async with running(folder, redis, parts(ScriptedAnalyst()), max_in_flight=9) as (process, _):
        webhook = process.webhook()
        scope = {"headers": [(b"x-ssop-key", KEY_ID.encode())]}
        hanging = [asyncio.create_task(webhook(scope, never, note)) for _ in range(20)]
        await eventually(lambda: statuses == [429] * 12)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(webhook), base_url="http://door") as client:
            body = bodies(posts(1, tenant=QUIET))
            headers = signed(body, nonce="a-nonce-of-another", key=f"{KEY_ID}-{QUIET}")
            reply = await client.post(PATH, content=body, headers={**headers, "content-type": "application/x-ndjson"})
        silent.set()
        await asyncio.gather(*hanging)
    assert reply.status_code == 202
