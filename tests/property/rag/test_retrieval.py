"""Properties of retrieval: tenants never meet, prefetching changes no result, passages cover their text."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.eventually import eventually
from helpers.rag import RagUnderTest, document, refs
from ssop_rag.core.chunking import Limits, split
from ssop_rag.core.record import PASSAGE, encode_key

WORDS = ["red", "blue", "cat", "dog", "sun", "moon", "天", "气", "很", "好"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
names = st.text(st.characters(codec="ascii", include_characters="_-", categories=["L", "Nd"]), min_size=1, max_size=6)
tenants = st.text(min_size=1, max_size=6)
ids = st.text(min_size=1, max_size=6)
written = st.lists(st.tuples(tenants, names, ids, texts), min_size=1, max_size=12)
slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def serve(body: Callable[[RagUnderTest], Awaitable[None]], ranker: str = "hybrid") -> None:
    """Run a body against a fresh service whose prefetches have no budget."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with RagUnderTest(Path(folder), prefetch_budget=0, prefetch_waste_weight=0, ranker=ranker) as rag:
                await body(rag)

    asyncio.run(run())


@slow
@given(written, texts)
@example([("a", "b", "c", "red"), ("ab", "c", "c", "red")], "red")
@example([("a", "a", "aa", "red"), ("a\0", "a", "a", "red"), ("aa", "a", "a", "red")], "red")
def test_tenants_never_meet(documents: list[tuple[str, str, str, str]], query: str) -> None:
    async def body(rag: RagUnderTest) -> None:
        own: dict[str, dict[tuple[str, str], str]] = {}
        for tenant, name, document_id, text in documents:
            held = own.setdefault(tenant, {})
            held[name, document_id] = f"{text} owner{list(own).index(tenant)}"
            await rag.caller(tenant).upsert(name, document(document_id, held[name, document_id]))
        for tenant in own:
            await rag.caller(tenant).prefetch("same-id", query)
            await eventually(lambda: rag.prefetcher.running == 0)
        for tenant, held in own.items():
            answer = await rag.caller(tenant).retrieve(query, request_id="same-id", top_k=32)
            assert {(name, document_id) for name, document_id, _ in refs(answer)} == set(held)
            assert all(p.text == held[p.ref.collection, p.ref.document_id] for p in answer.passages)

    serve(body)


@slow
@given(
    st.lists(texts, min_size=1, max_size=60),
    st.lists(st.tuples(texts, texts, st.integers(1, 8), st.floats(0, 1, width=32)), min_size=1, max_size=10),
)
def test_a_prefetch_changes_no_result(corpus: list[str], queries: list[tuple[str, str, int, float]]) -> None:
    async def body(rag: RagUnderTest) -> None:
        acme = rag.caller()
        await acme.upsert("a", *[document(str(n), text) for n, text in enumerate(corpus)])
        await acme.upsert("b", *[document(str(n), text) for n, text in enumerate(corpus[::2])])
        for number, (prefix, rest, top_k, ratio) in enumerate(queries):
            for query in (prefix, f"{prefix} {rest}"):
                plain = await acme.retrieve(query, top_k=top_k)
                assert await acme.prefetch(f"{number}{query}", prefix, top_k=top_k, ratio=ratio)
                await eventually(lambda: rag.prefetcher.running == 0)
                fetched = await acme.retrieve(query, request_id=f"{number}{query}", top_k=top_k)
                assert refs(fetched) == refs(plain)
                assert fetched.index_version == plain.index_version
                assert fetched.is_prefetch_hit or query != prefix

    serve(body)


@pytest.mark.parametrize("ranker", ["vector", "bm25", "hybrid"])
def test_a_thousand_queries_are_answered_alike_with_and_without_prefetch(ranker: str) -> None:
    rng = np.random.default_rng(11)

    def words(count: int) -> str:
        return " ".join(f"w{n}" for n in rng.integers(0, 200, count))

    async def body(rag: RagUnderTest) -> None:
        acme = rag.caller()
        await acme.upsert("a", *[document(str(n), words(6)) for n in range(400)])
        hits = 0
        for number in range(1000):
            query = words(int(rng.integers(2, 9)))
            prefix = query if number % 3 == 0 else query[: len(query) * 2 // 3]
            await acme.prefetch(str(number), prefix, ratio=1.0)
            if number % 2:
                await eventually(lambda: rag.prefetcher.running == 0)
            fetched = await acme.retrieve(query, request_id=str(number))
            hits += fetched.is_prefetch_hit
            assert refs(fetched) == refs(await acme.retrieve(query))
        assert hits >= 334

    serve(body, ranker=ranker)


@given(st.lists(st.text(max_size=8), max_size=3), st.lists(st.text(max_size=8), max_size=3))
def test_keys_are_equal_only_for_equal_parts(left: list[str], right: list[str]) -> None:
    assert (encode_key(PASSAGE, *left) == encode_key(PASSAGE, *right)) == (left == right)


@given(
    st.text(st.sampled_from("ab .!?。，！\n\t字“”"), max_size=400),
    st.text(max_size=40),
    st.integers(16, 120).flatmap(lambda m: st.tuples(st.just(m), st.integers(0, m // 2))),
)
def test_passages_are_bounded_and_cover_the_text(text: str, title: str, sizes: tuple[int, int]) -> None:
    max_chars, overlap_chars = sizes
    passages = split(text, "", Limits(max_chars, overlap_chars))
    assert all(0 < len(passage) <= max_chars for passage in split(text, title, Limits(max_chars, overlap_chars)))
    position, squeezed = 0, "".join(text.split())
    for passage in ("".join(passage.split()) for passage in passages):
        begin = squeezed.rfind(passage, 0, position + len(passage))
        assert begin != -1
        assert begin <= position
        position = max(position, begin + len(passage))
    assert position == len(squeezed)
