"""A thousand queries of the retrieval suites: with and without prefetch the same passages, whatever ranks them."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from helpers.components import suites_dir
from helpers.eventually import eventually
from helpers.rag import RagUnderTest, document, refs
from ssop_chassis.words import take_tokens

SETS = ("en_xquad2wiki", "zh_cmrc_xquad")
DOCUMENTS = 600
QUERIES = 500


def read(name: str, kind: str) -> list[dict[str, Any]]:
    folder = suites_dir()
    assert folder is not None
    with gzip.open(folder / "rag" / f"{name}_{kind}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.needs("suites")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("ranker", ["vector", "bm25", "hybrid"])
async def test_prefetch_changes_no_answer_to_a_thousand_queries(tmp_path: Path, ranker: str) -> None:
    rng = random.Random(7)
    async with RagUnderTest(
        tmp_path / "index", ranker=ranker, prefetch_budget=0, prefetch_waste_weight=0, max_document_bytes=1_000_000
    ) as rag:
        acme = rag.caller()
        hits = orders = asked = 0
        for name in SETS:
            documents = [document(one["id"], one["text"][:400], title=one["title"]) for one in read(name, "docs")]
            for begin in range(0, DOCUMENTS, 100):
                await acme.upsert(name, *documents[begin : begin + 100])
            for number, query in enumerate(rng.sample([one["text"] for one in read(name, "queries")], QUERIES)):
                prefix = query if number % 4 == 0 else take_tokens(query, rng.choice([3, 10, 15]))
                await acme.prefetch(f"{name}-{number}", prefix, name, top_k=5)
                if number % 3:
                    await eventually(lambda: rag.prefetcher.running == 0)
                fetched = await acme.retrieve(query, name, request_id=f"{name}-{number}", top_k=5)
                plain = await acme.retrieve(query, name, top_k=5)
                assert set(refs(fetched)) == set(refs(plain))
                assert not fetched.is_lossy
                orders += refs(fetched) == refs(plain)
                hits += fetched.is_prefetch_hit
                asked += 1
        assert asked == 1_000
        assert hits >= 250
        print(f"{ranker}: {hits} of {asked} used a prefetch, {orders} in the same order")
        assert orders == asked
