"""Posts through queue and worker into SQLite, on a real Redis: each exactly once, whatever goes away meanwhile."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.opinion import GOOD, TENANT, NotingDesk, ScriptedAnalyst, emptied, parts, posts, running, sums, working
from helpers.redis_server import RedisServer
from ssop_opinion.core.post import Post, PostError
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.intake import Origin
from ssop_opinion.ports import ItemFault, MeshAwayError, Page, Query, SinkAwayError
from ssop_opinion.process import OpinionProcess
from ssop_opinion.queue import DUPLICATE, POSTS, QUEUED, REFUSED, QueueAwayError

ORIGIN = Origin(TENANT, "crm", "webhook")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("state") as server:
        yield server


async def stored(process: OpinionProcess) -> list[str]:
    """Keys of the records in the sink."""
    page = await process.sink.find(Query(TENANT, limit=10_000))
    assert page.total == len(page.records)
    return sorted(record.key for record in page.records)


async def wait_for(process: OpinionProcess, made: Sequence[Post]) -> None:
    """Wait until the queue is empty, then hold the sink against what was accepted."""
    await emptied(process)
    assert await stored(process) == sorted(post.key for post in made)


class FlakySink:
    """A sink that is away, or refuses, as a test says."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.is_away = False
        self.writes = 0
        self.faults: dict[str, ItemFault] = {}

    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        self.writes += 1
        if self.is_away:
            raise SinkAwayError("away")
        faults = [self.faults[record.key] for record in records if record.key in self.faults]
        refused = {fault.key for fault in faults}
        self.records.update({record.key: record for record in records if record.key not in refused})
        return faults

    async def find(self, query: Query) -> Page:
        return Page(list(self.records.values()), len(self.records))

    async def close(self) -> None:
        return


async def test_posts_become_records_and_alerts_hear_of_both(tmp_path: Path, redis: RedisServer) -> None:
    desk = NotingDesk()
    made = posts(50)
    async with running(tmp_path, redis, parts(ScriptedAnalyst(), desk)) as (process, registry), working(process):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)
    assert sorted(record.key for record in desk.stored) == sorted(post.key for post in made)
    assert (made[0].key, "sentiment_score", -3) in desk.fields
    assert registry.get_sample_value("ssop_opinion_post_seconds_count") == 50


async def test_a_second_delivery_is_known(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(3)
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _):
        first = await process.intake.append(made, ORIGIN)
        second = await process.intake.append([*made, made[0]], ORIGIN)
    assert first.outcomes == [QUEUED] * 3
    assert second.outcomes == [DUPLICATE] * 4


async def test_a_delivery_beyond_the_window_replaces_the_record(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(1)
    async with (
        running(tmp_path, redis, parts(ScriptedAnalyst()), duplicate_window_ms=1) as (process, _),
        working(process),
    ):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)


async def test_reposts_are_one_analysis_and_a_record_each(tmp_path: Path, redis: RedisServer) -> None:
    text = "Acme's battery died after a day"
    made = [
        Post(TENANT, "crm", str(number), said, "webhook", 1)
        for number, said in enumerate([text, f"RT @someone: {text}", f"{text}  http://t.example/x", text.upper()])
    ]
    analyst = ScriptedAnalyst()
    async with running(tmp_path, redis, parts(analyst)) as (process, _), working(process):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)
        records = (await process.sink.find(Query(TENANT))).records
    assert len(analyst.seen) == 1
    assert sorted(record.analysis.cache for record in records) == ["miss", "repost", "repost", "repost"]


async def test_a_mesh_that_is_away_loses_nothing(tmp_path: Path, redis: RedisServer) -> None:
    is_away = True

    def answer(_: Post) -> Analysis:
        if is_away:
            raise MeshAwayError("away", 0.01)
        return GOOD

    made = posts(10)
    analyst = ScriptedAnalyst(answer)
    async with running(tmp_path, redis, parts(analyst)) as (process, registry), working(process):
        await process.intake.append(made, ORIGIN)
        await eventually(lambda: len(analyst.seen) > 11, 60)
        assert registry.get_sample_value("ssop_opinion_away", {"what": "mesh"}) == 1
        is_away = False
        await wait_for(process, made)
    assert registry.get_sample_value("ssop_opinion_away", {"what": "mesh"}) == 0


async def test_a_sink_that_is_away_loses_nothing(tmp_path: Path, redis: RedisServer) -> None:
    sink = FlakySink()
    sink.is_away = True
    made = posts(30)
    async with running(tmp_path, redis, parts(ScriptedAnalyst(), sink=sink)) as (process, _), working(process):
        await process.intake.append(made, ORIGIN)
        await eventually(lambda: sink.writes > 3, 60)
        assert (await process.queue.sizes())[0] == 30
        sink.is_away = False
        await wait_for(process, made)


async def test_what_a_sink_never_takes_is_a_dead_letter_with_its_post(tmp_path: Path, redis: RedisServer) -> None:
    sink = FlakySink()
    made = posts(5)
    sink.faults[made[2].key] = ItemFault(made[2].key, "mapping", is_lasting=True)
    async with running(tmp_path, redis, parts(ScriptedAnalyst(), sink=sink)) as (process, _), working(process):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made[:2] + made[3:])
        [(_, letter)] = await process.queue.dead_letters(10)
    assert letter.reason == "sink_mapping"
    assert made[2].id.encode() in letter.payload


async def test_a_record_that_is_refused_again_and_again_does_not_hold_others_up(
    tmp_path: Path, redis: RedisServer
) -> None:
    sink = FlakySink()
    made = posts(5)
    sink.faults[made[0].key] = ItemFault(made[0].key, "busy", is_lasting=False)
    async with (
        running(tmp_path, redis, parts(ScriptedAnalyst(), sink=sink), max_tries=2, max_wait_ms=20) as (process, _),
        working(process),
    ):
        await process.intake.append(made, ORIGIN)
        await eventually(lambda: len(sink.records) == 4, 60)
        sink.faults.clear()
        await wait_for(process, made)


async def test_a_post_that_breaks_its_analysis_is_a_failed_record_and_a_dead_letter(
    tmp_path: Path, redis: RedisServer
) -> None:
    made = posts(5)

    def answer(post: Post) -> Analysis:
        if post.id == made[1].id:
            raise RuntimeError("a bug that this post sets off")
        return GOOD

    async with (
        running(tmp_path, redis, parts(ScriptedAnalyst(answer)), max_tries=2) as (process, _),
        working(process),
    ):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)
        records = (await process.sink.find(Query(TENANT, terms={"verdict": "failed"}))).records
        [(_, letter)] = await process.queue.dead_letters(10)
    assert [record.key for record in records] == [made[1].key]
    assert letter.reason == "gave_up"


async def test_posts_of_a_dead_worker_are_taken_over(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(20)
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (dead, _):
        await dead.intake.append(made, ORIGIN)
        assert len(await dead.queue.read(100, 100)) == 20
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, registry), working(process):
        await wait_for(process, made)
    assert registry.get_sample_value("ssop_opinion_taken_over_total") == 20


async def test_a_worker_that_is_told_to_stop_leaves_its_posts_to_others_at_once(
    tmp_path: Path, redis: RedisServer
) -> None:
    hanging = asyncio.Event()

    class Hanging(ScriptedAnalyst):
        async def analyse(self, post: Post, on_field: Any) -> Analysis:
            hanging.set()
            await asyncio.Event().wait()
            return GOOD

    made = posts(4)
    async with running(tmp_path, redis, parts(Hanging()), claim_ms=600_000) as (process, _):
        await process.intake.append(made, ORIGIN)
        stop = asyncio.Event()
        task = asyncio.create_task(process.require_worker().run(stop, 0.05))
        await hanging.wait()
        stop.set()
        await task
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), claim_ms=600_000) as (process, _):
        assert len(await process.queue.claim(10)) == 4


async def test_a_post_that_kills_every_worker_is_given_up(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(1)
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_tries=3, claim_ms=100) as (process, _):
        await process.intake.append(made, ORIGIN)
        await process.queue.read(1, 100)
        for _ in range(3):
            async with asyncio.timeout(60):
                while not await process.queue.claim(1):
                    await asyncio.sleep(0.02)
    analyst = ScriptedAnalyst()
    async with running(tmp_path, redis, parts(analyst), max_tries=3, claim_ms=100) as (process, _), working(process):
        await wait_for(process, made)
        [record] = (await process.sink.find(Query(TENANT))).records
    assert record.analysis.verdict == "failed"
    assert not analyst.seen


async def test_redis_restarted_forgets_nothing(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(40)
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _):
        await process.intake.append(made, ORIGIN)
        redis.kill()
        with pytest.raises(QueueAwayError):
            await process.intake.append(posts(1, seed=1), ORIGIN)
        redis.start()
        async with working(process):
            await wait_for(process, made)


async def test_redis_away_while_the_worker_works_loses_nothing(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(300)
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), batch=10) as (process, _), working(process):
        await process.intake.append(made, ORIGIN)
        redis.kill()
        redis.start()
        await wait_for(process, made)


async def test_a_worker_that_starts_with_a_full_redis_empties_it(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(5)
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _):
        await process.intake.append(made, ORIGIN)
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
            await wait_for(process, made)
            await emptied(process)
    finally:
        redis.ask("CONFIG", "SET", "maxmemory", "0")


async def test_shed_refuses_what_finds_no_room(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(6)
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_queued=4) as (process, _):
        appended = await process.intake.append(made, ORIGIN)
        assert appended.outcomes == [QUEUED] * 4 + [REFUSED] * 2
        async with working(process):
            await wait_for(process, made[:4])
            again = await process.intake.append(made, ORIGIN)
            assert again.outcomes == [DUPLICATE] * 4 + [QUEUED] * 2
            await wait_for(process, made)


async def test_bytes_are_bounded_and_given_back(tmp_path: Path, redis: RedisServer) -> None:
    made = [Post(TENANT, "crm", str(n), str(n) + "x" * 5_000, "webhook", 1) for n in range(4)]
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_queued_bytes=12_000) as (process, _):
        assert (await process.intake.append(made, ORIGIN)).outcomes == [QUEUED, QUEUED, REFUSED, REFUSED]
        async with working(process):
            await wait_for(process, made[:2])
    assert sums(redis) == {0}


async def test_oldest_drops_what_waits_longest_and_never_what_is_worked_on(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(6)
    async with running(tmp_path, redis, parts(ScriptedAnalyst()), max_queued=3, overflow="oldest") as (process, _):
        await process.intake.append(made[:3], ORIGIN)
        [held] = await process.queue.read(1, 100)
        appended = await process.intake.append(made[3:5], ORIGIN)
        assert (appended.outcomes, appended.dropped) == ([QUEUED] * 2, 2)
        assert held.post == made[0]
        assert [letter.reason for _, letter in await process.queue.dead_letters(9)] == ["shed_oldest"] * 2
        rest = [entry.post for entry in await process.queue.read(9, 100)]
        assert rest == made[3:5]
        # All that is left is worked on.
        assert (await process.intake.append(made[5:], ORIGIN)).outcomes == [REFUSED]


async def test_sample_takes_a_share_above_the_bound(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(60)
    async with running(
        tmp_path, redis, parts(ScriptedAnalyst()), max_queued=20, overflow="sample", sample_one_in=4
    ) as (process, _):
        outcomes = (await process.intake.append(made, ORIGIN)).outcomes
    assert outcomes[:20] == [QUEUED] * 20
    assert 1 <= outcomes[20:].count(QUEUED) < 30
    assert REFUSED not in outcomes


async def test_a_payload_that_cannot_be_read_is_a_dead_letter(tmp_path: Path, redis: RedisServer) -> None:
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
        redis.ask("XADD", POSTS, "*", "post", b"\xff not json")
        redis.ask("XADD", POSTS, "*", "else", "x")
        await wait_for(process, [])
        letters = [letter.reason for _, letter in await process.queue.dead_letters(9)]
    assert letters == ["payload_unreadable"] * 2


async def test_a_dead_letter_with_its_post_can_be_queued_again(tmp_path: Path, redis: RedisServer) -> None:
    sink = FlakySink()
    made = posts(2)
    sink.faults[made[0].key] = ItemFault(made[0].key, "mapping", is_lasting=True)
    async with running(tmp_path, redis, parts(ScriptedAnalyst(), sink=sink)) as (process, _), working(process):
        await process.office.note_faults(
            [(PostError("not_json", ""), b"{")], tenant=TENANT, source="crm", channel="webhook"
        )
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made[1:])
        sink.faults.clear()
        assert await process.queue.revive(10) == 1
        await wait_for(process, made)
        assert [letter.reason for _, letter in await process.queue.dead_letters(10)] == ["not_json"]
    assert sums(redis) == {0}


async def test_a_redis_that_would_forget_is_refused(tmp_path: Path) -> None:
    with RedisServer("cache") as cache, pytest.raises(ValueError, match="would lose accepted posts"):
        async with running(tmp_path, cache, parts(ScriptedAnalyst())):
            pass


async def test_a_desk_that_fails_costs_no_record(tmp_path: Path, redis: RedisServer) -> None:
    class Broken(NotingDesk):
        def field_arrived(self, *_: Any) -> None:
            raise RuntimeError

        async def record_stored(self, *_: Any) -> None:
            raise RuntimeError

    made = posts(3)
    async with running(tmp_path, redis, parts(ScriptedAnalyst(), Broken())) as (process, _), working(process):
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)


async def test_an_emptied_redis_is_used_again(tmp_path: Path, redis: RedisServer) -> None:
    made = posts(2)
    async with running(tmp_path, redis, parts(ScriptedAnalyst())) as (process, _), working(process):
        redis.ask("FLUSHALL")
        await process.intake.append(made, ORIGIN)
        await wait_for(process, made)
