"""Prefetches of the service: what starts, what is shed, what is used, what it costs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from threading import Event

import pytest

from helpers.eventually import eventually
from helpers.rag import Caller, RagUnderTest, document, refs
from ssop.v1 import rag_pb2
from ssop_chassis.errors import MeshError
from ssop_rag.core.model import Matrix
from ssop_rag.store import PooledStore

TEXTS = [f"word{n} word{n + 1} word{n + 2} common" for n in range(60)]


@pytest.fixture
async def rag(tmp_path: Path) -> AsyncIterator[RagUnderTest]:
    async with RagUnderTest(tmp_path / "index") as service:
        yield service


@pytest.fixture
def acme(rag: RagUnderTest) -> Caller:
    return rag.caller("acme")


async def test_a_prefetch_of_the_whole_query_is_a_hit_without_a_second_embedding(
    rag: RagUnderTest, acme: Caller
) -> None:
    await acme.upsert("faq", *[document(str(n), f"word {n}") for n in range(300)])
    plain = await acme.retrieve("word 7")
    rag.embedder.queries.clear()
    assert await acme.prefetch("r", "word  7 ")
    fetched = await acme.retrieve("word 7", request_id="r")
    assert fetched.is_prefetch_hit
    assert refs(fetched) == refs(plain)
    assert rag.embedder.queries == ["word 7"]
    assert rag.prefetches("hit") == 1


async def test_a_prefetch_is_used_once(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.prefetch("r", "one")
    assert [(await acme.retrieve("one", request_id="r")).is_prefetch_hit for _ in range(2)] == [True, False]


async def test_a_prefetch_does_not_hide_a_later_change(acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.prefetch("r", "two")
    await acme.upsert("faq", document("2", "two"))
    assert refs(await acme.retrieve("two", request_id="r", top_k=1)) == [("faq", "2", 0)]


async def test_a_prefetch_for_other_collections_is_not_used(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("a", document("1", "one"))
    await acme.upsert("b", document("1", "one"))
    await acme.prefetch("r", "one", "a")
    answer = await acme.retrieve("one", "b", request_id="r")
    assert (refs(answer), answer.is_prefetch_hit, rag.prefetches("wasted")) == ([("b", "1", 0)], False, 1)


async def test_the_overlap_is_what_had_passed(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    rag.embedder.gate.clear()
    await acme.prefetch("r", "one")
    rag.clocks.monotonic_ms = 40
    retrieving = asyncio.ensure_future(acme.retrieve("one", request_id="r"))
    for _ in range(20):  # until it waits for the prefetch
        await asyncio.sleep(0)
    rag.clocks.monotonic_ms = 70
    rag.embedder.gate.set()
    assert (await retrieving).overlap_ms == 40


async def test_a_prefetch_of_nothing_is_not_started(acme: Caller) -> None:
    assert not await acme.prefetch("r", "what is")


async def test_a_prefetch_is_shed_when_its_threads_and_queue_are_full(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", prefetch_queue=1, rag_max_concurrent=9) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        rag.embedder.gate.clear()
        assert [await acme.prefetch(f"r{n}", "one") for n in range(3)] == [True, True, False]
        assert rag.prefetches("shed") == 1


async def test_a_tenant_runs_two_prefetches_at_most(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", prefetch_threads=4) as rag:
        acme, other = rag.caller("acme"), rag.caller("other")
        for caller in (acme, other):
            await caller.upsert("faq", document("1", "one"))
        rag.embedder.gate.clear()
        assert [await acme.prefetch(f"r{n}", "one") for n in range(3)] == [True, True, False]
        assert await other.prefetch("r0", "one")


async def test_a_cancelled_prefetch_is_wasted(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.prefetch("r", "one")
    await acme.cancel("r")
    assert rag.prefetches("wasted") == 1
    assert not (await acme.retrieve("one", request_id="r")).is_prefetch_hit


async def test_cancelling_nothing_is_no_error(acme: Caller) -> None:
    await acme.cancel("r")


async def test_an_unclaimed_prefetch_expires(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.prefetch("r", "one")
    rag.clocks.monotonic_ms = rag.settings.prefetch_ttl_ms
    assert not (await acme.retrieve("one", request_id="r")).is_prefetch_hit
    assert rag.prefetches("wasted") == 1


async def test_a_request_does_not_wait_for_a_prefetch_of_other_text(
    rag: RagUnderTest, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.upsert("faq", document("1", "one"))
    gate = Event()
    embed = rag.embedder.embed_query

    def embed_slowly(texts: Sequence[str]) -> Matrix:
        assert texts != ["slow"] or gate.wait(10)
        return embed(texts)

    monkeypatch.setattr(rag.embedder, "embed_query", embed_slowly)
    await acme.prefetch("r", "slow")
    assert refs(await acme.retrieve("one", request_id="r")) == [("faq", "1", 0)]
    gate.set()


async def test_a_failed_prefetch_does_not_fail_its_request(
    rag: RagUnderTest, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.upsert("faq", document("1", "one"))

    def fail(_: Sequence[str]) -> Matrix:
        monkeypatch.undo()
        raise RuntimeError("broken")

    monkeypatch.setattr(rag.embedder, "embed_query", fail)
    await acme.prefetch("r", "one")
    assert refs(await acme.retrieve("one", request_id="r")) == [("faq", "1", 0)]
    assert rag.prefetches("wasted") == 1


async def test_a_prefetch_never_holds_a_thread_of_requests(
    rag: RagUnderTest, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.upsert("faq", document("1", "one"))
    gate = Event()
    embed = rag.embedder.embed_query

    def embed_slowly(texts: Sequence[str]) -> Matrix:
        assert not texts[0].startswith("slow") or gate.wait(10)
        return embed(texts)

    monkeypatch.setattr(rag.embedder, "embed_query", embed_slowly)
    assert [await acme.prefetch(f"r{n}", f"slow {n}") for n in range(2)] == [True, True]
    assert [refs(await acme.retrieve(f"one {n}")) for n in range(4)] == [[("faq", "1", 0)]] * 4
    gate.set()


async def test_no_prefetch_starts_while_queries_wait(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", threads=1) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        rag.embedder.gate.clear()
        waiting = [asyncio.ensure_future(acme.retrieve(f"one {n}")) for n in range(2)]
        await eventually(lambda: rag.pool.queued == 1)
        assert await acme.prefetch_outcome("r", "one") == rag_pb2.PREFETCH_OUTCOME_BUSY
        rag.embedder.gate.set()
        await asyncio.gather(*waiting)
        assert await acme.prefetch("r", "one")


async def test_a_longer_prefix_replaces_and_wastes_the_shorter(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    await acme.prefetch("r", "on")
    await eventually(lambda: rag.prefetcher.running == 0)
    await acme.prefetch("r", "one")
    assert (await acme.retrieve("one", request_id="r")).is_prefetch_hit
    assert (rag.prefetches("hit"), rag.prefetches("wasted")) == (1, 1)


async def test_a_ratio_outside_its_range_is_refused(acme: Caller) -> None:
    with pytest.raises(MeshError, match="rag_prefetch_ratio"):
        await acme.prefetch("r", "q", ratio=1.5)


# --- the lossy mode


async def fetch(rag: RagUnderTest, caller: Caller, request_id: str, prefix: str, **options: float) -> None:
    """Prefetch, and wait until it is there."""
    assert await caller.prefetch(request_id, prefix, **options)  # type: ignore[arg-type]
    await eventually(lambda: rag.prefetcher.running == 0)


@pytest.mark.parametrize("ranker", ["vector", "bm25", "hybrid"])
async def test_lossy_answers_from_the_candidates_and_says_so(tmp_path: Path, ranker: str) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy", ranker=ranker) as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        await fetch(rag, acme, "r", "word7", ratio=0.04, top_k=2)
        answer = await acme.retrieve("word7 word8", request_id="r", top_k=2)
        assert answer.is_lossy
        assert answer.is_prefetch_hit
        assert len(answer.passages) == 2
        again = await acme.retrieve("word7 word8", top_k=2)
        assert not again.is_lossy


async def test_lossy_with_too_few_candidates_searches(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy", ranker="bm25") as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        await fetch(rag, acme, "r", "word7", ratio=0.01, top_k=1)
        answer = await acme.retrieve("common word9", request_id="r", top_k=8)
        assert not answer.is_lossy
        assert refs(answer) == refs(await acme.retrieve("common word9", top_k=8))


async def test_lossy_with_the_whole_text_is_lossless(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy") as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        await fetch(rag, acme, "r", "word7 word8")
        answer = await acme.retrieve("word7 word8", request_id="r")
        assert (answer.is_prefetch_hit, answer.is_lossy) == (True, False)


async def test_lossy_never_shows_a_document_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy") as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        await fetch(rag, acme, "r", "word7")
        await acme.delete("faq", "7")
        answer = await acme.retrieve("word7 word8", request_id="r")
        assert not answer.is_lossy
        assert "7" not in [ref[1] for ref in refs(answer)]


async def test_lossy_searches_the_store_no_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy") as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        await fetch(rag, acme, "r", "word7")

        async def search(*_: object, **__: object) -> None:
            raise AssertionError("searched")

        monkeypatch.setattr(PooledStore, "search", search)
        assert (await acme.retrieve("word7 word8", request_id="r")).is_lossy


async def test_lossy_waits_for_candidates_that_are_on_their_way(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", rag_prefetch_mode="lossy", ranker="bm25") as rag:
        acme = rag.caller()
        await acme.upsert("faq", *[document(str(n), text) for n, text in enumerate(TEXTS)])
        assert await acme.prefetch("r", "common word7")
        assert (await acme.retrieve("common word7 word8", request_id="r")).is_lossy


# --- what it costs


async def test_usage_counts_what_the_tenant_did(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one two"))
    await fetch(rag, acme, "used", "one two")
    await acme.retrieve("one two", request_id="used")
    await fetch(rag, acme, "unused", "one two three 四五")
    await acme.cancel("unused")
    usage = await acme.usage()
    assert (usage.started, usage.hits, usage.wasted, usage.shed) == (2, 1, 1, 0)
    assert usage.tokens == 2 + 5
    assert usage.budget_left == usage.budget - 2
    assert (await rag.caller("other").usage()).started == 0


async def test_none_starts_for_a_while_after_one_that_had_to_wait_for_a_core(
    rag: RagUnderTest, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.upsert("faq", document("1", "one two"))
    embed = rag.embedder.embed_query

    def embed_for_400_ms(texts: Sequence[str]) -> Matrix:
        rag.clocks.monotonic_ms += 400
        return embed(texts)

    monkeypatch.setattr(rag.embedder, "embed_query", embed_for_400_ms)
    await fetch(rag, acme, "slow", "one two")
    assert await acme.prefetch_outcome("next", "one") == rag_pb2.PREFETCH_OUTCOME_BUSY
    assert (await acme.retrieve("one two", request_id="slow")).is_prefetch_hit
    rag.clocks.monotonic_ms += 500
    assert await acme.prefetch("later", "one")


async def test_saved_time_is_that_of_the_work_that_was_done_ahead(
    rag: RagUnderTest, acme: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acme.upsert("faq", document("1", "one two"))
    embed = rag.embedder.embed_query

    def embed_for_40_ms(texts: Sequence[str]) -> Matrix:
        rag.clocks.monotonic_ms += 40
        return embed(texts)

    monkeypatch.setattr(rag.embedder, "embed_query", embed_for_40_ms)
    await fetch(rag, acme, "used", "one two")
    await acme.retrieve("one two", request_id="used")
    rag.clocks.monotonic_ms += 500
    await fetch(rag, acme, "unused", "three")
    await acme.cancel("unused")
    usage = await acme.usage()
    assert (usage.saved_ms, usage.wasted_ms) == (40, 40)


async def test_budget_of_a_tenant_ends_and_comes_back(tmp_path: Path) -> None:
    async with RagUnderTest(tmp_path / "index", prefetch_budget=3, prefetch_window_ms=3_000) as rag:
        acme, other = rag.caller("acme"), rag.caller("other")
        for caller in (acme, other):
            await caller.upsert("faq", document("1", "one"))
        outcomes = []
        for n in range(4):
            outcomes.append(await acme.prefetch_outcome(f"r{n}", "one"))
            await eventually(lambda: rag.prefetcher.running == 0)
        assert outcomes == [rag_pb2.PREFETCH_OUTCOME_STARTED] * 3 + [rag_pb2.PREFETCH_OUTCOME_BUDGET]
        assert await other.prefetch("r", "one")
        rag.clocks.monotonic_ms += 1_000
        assert await acme.prefetch("r9", "one")
        assert (await acme.usage()).budget_left == 0


async def test_prefetches_that_save_nothing_are_off_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RagUnderTest(
        tmp_path / "index", prefetch_budget=0, prefetch_off_ms=1_000, prefetch_max_stretch=0
    ) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        embed = rag.embedder.embed_query

        def embed_for_10_ms(texts: Sequence[str]) -> Matrix:
            rag.clocks.monotonic_ms += 10
            return embed(texts)

        monkeypatch.setattr(rag.embedder, "embed_query", embed_for_10_ms)

        async def waste(count: int) -> int:
            started = 0
            for n in range(count):
                started += await acme.prefetch(f"w{n}", f"one {n}")
                await eventually(lambda: rag.prefetcher.running == 0)
                await acme.cancel(f"w{n}")
            return started

        assert await waste(40) == 32
        usage = await acme.usage()
        assert usage.is_off
        assert 0 < usage.probe_in_ms <= 1_000
        assert rag.registry.get_sample_value("ssop_rag_prefetch_off", {"tenant": "acme"}) == 1
        assert await acme.prefetch_outcome("r", "one") == rag_pb2.PREFETCH_OUTCOME_OFF
        assert await rag.caller("other").prefetch_outcome("r", "one") == rag_pb2.PREFETCH_OUTCOME_NOTHING
        rag.clocks.monotonic_ms += 1_000
        for n in range(16):
            await fetch(rag, acme, f"u{n}", f"one two {n}")
            assert (await acme.retrieve(f"one two {n}", request_id=f"u{n}")).is_prefetch_hit
        assert not (await acme.usage()).is_off
        assert rag.registry.get_sample_value("ssop_rag_prefetch_off", {"tenant": "acme"}) == 0


async def test_profile_changes_bounds_for_its_time(tmp_path: Path) -> None:
    peak = {"from": "1970-01-01T00:20:00+00:00", "until": "1970-01-01T00:30:00+00:00", "rag_max_concurrent": 0}
    async with RagUnderTest(tmp_path / "index", profiles=[peak]) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        assert await acme.prefetch("r1", "one")
        rag.clocks.wall_ms = 20 * 60_000
        assert await acme.prefetch_outcome("r2", "one") == rag_pb2.PREFETCH_OUTCOME_TENANT_FULL
        rag.clocks.wall_ms = 30 * 60_000
        await eventually(lambda: rag.prefetcher.running == 0)
        assert await acme.prefetch("r3", "one")


# --- warming


async def test_warmed_queries_are_not_embedded_when_they_come(rag: RagUnderTest, acme: Caller) -> None:
    await acme.upsert("faq", document("1", "one"))
    done = await acme.warm("what is  one", "two", "two")
    assert (done.embedded, done.known) == (2, 0)
    assert (await acme.warm("two")).known == 1
    embedded = len(rag.embedder.queries)
    await acme.retrieve("what is one")
    assert len(rag.embedder.queries) == embedded


async def test_warmed_vectors_are_the_tenants_own(rag: RagUnderTest, acme: Caller) -> None:
    other = rag.caller("other")
    for caller in (acme, other):
        await caller.upsert("faq", document("1", "one"))
    await acme.warm("what is one")
    await other.retrieve("what is one")
    assert rag.embedder.queries.count("what is one") == 2


@pytest.mark.parametrize("queries", [[], [" "], ["x"] * 65])
async def test_malformed_warming_is_refused(acme: Caller, queries: list[str]) -> None:
    with pytest.raises(MeshError, match="queries"):
        await acme.warm(*queries)


# --- what is left behind


async def test_ten_thousand_cancelled_prefetches_leave_nothing(tmp_path: Path) -> None:
    async with RagUnderTest(
        tmp_path / "index", prefetch_budget=0, prefetch_waste_weight=0, rag_max_concurrent=64, prefetch_queue=64
    ) as rag:
        acme = rag.caller()
        await acme.upsert("faq", document("1", "one"))
        before = len(asyncio.all_tasks())
        started = 0
        for batch in range(200):
            names = [f"{batch}-{n}" for n in range(50)]
            started += sum(await asyncio.gather(*[acme.prefetch(name, f"one {name}") for name in names]))
            await asyncio.gather(*[acme.cancel(name) for name in names])
            await eventually(lambda: not len(rag.prefetcher) and not rag.prefetch_pool.queued)
        assert started > 1_000
        usage = await acme.usage()
        assert usage.started == started == usage.wasted
        assert usage.started + usage.shed == 10_000
        await eventually(lambda: len(asyncio.all_tasks()) == before)
        assert rag.prefetcher.running == 0
