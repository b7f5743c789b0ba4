"""Retrieval with the real embedder and store, in this process: documents indexed a second, and time of a query.

Run by name: `python tests/bench/bench_rag.py`. Prints one line for each case, and leaves nothing behind.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the service; before numpy

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.eventually import eventually
from helpers.rag import RagUnderTest, document
from ssop_rag.core.model import Document, Query
from ssop_rag.core.ranking import unit_rows
from ssop_rag.embedded import EmbeddedIndex
from ssop_rag.embedder import E5

DOCUMENTS = 100
QUERIES = 100
ROWS = (1_000, 10_000, 50_000)
TEXT = "Parcel {} leaves our warehouse every evening and arrives within two working days at your door."
QUERY = "When does parcel {} arrive at my door?"


async def measure(name: str, call: Callable[[int], Awaitable[object]], count: int = QUERIES) -> None:
    """Print the median and P99 of calls one after the other."""
    took_ms = []
    for n in range(count):
        started_s = time.perf_counter()
        await call(n)
        took_ms.append((time.perf_counter() - started_s) * 1e3)
    print(
        f"{name:44} p50 {statistics.median(took_ms):7.2f} ms   p99 {statistics.quantiles(took_ms, n=100)[98]:7.2f} ms"
    )


async def bench_service(folder: Path) -> None:
    """The whole service."""
    async with RagUnderTest(folder, embedder=E5(), threads=2) as rag:
        caller = rag.caller()
        started_s = time.perf_counter()
        for batch in range(0, DOCUMENTS, 20):
            await caller.upsert("b", *[document(str(n), TEXT.format(n)) for n in range(batch, batch + 20)])
        rate = DOCUMENTS / (time.perf_counter() - started_s)
        print(f"{'upsert, one passage of 95 characters each':44} {rate:6.1f} documents/s (2 threads)")

        async def fetch(n: int) -> None:
            await caller.retrieve(QUERY.format(n), request_id=str(n))

        await measure("query, without prefetch", fetch)
        took_ms = []
        hits = 0
        for n in range(QUERIES):
            await caller.prefetch(str(n), QUERY.format(n))
            await eventually(lambda: rag.prefetcher.running == 0)
            started_s = time.perf_counter()
            hits += (await caller.retrieve(QUERY.format(n), request_id=str(n))).is_prefetch_hit
            took_ms.append((time.perf_counter() - started_s) * 1e3)
        print(f"{'query, prefetched whole':44} p50 {statistics.median(took_ms):7.2f} ms   hits {hits}/{QUERIES}")
        hits = 0
        for n in range(QUERIES):
            await caller.prefetch(f"half{n}", QUERY.format(n)[:20])
            await eventually(lambda: rag.prefetcher.running == 0)
            hits += (await caller.retrieve(QUERY.format(n), request_id=f"half{n}")).is_prefetch_hit
        print(f"{'query, half prefetched, proven':44} hits {hits}/{QUERIES}")


def bench_index(folder: Path) -> None:
    """The index alone, with random vectors: writes, start and search."""
    rng = np.random.default_rng(1)
    index = EmbeddedIndex(folder, "random", 384, lambda *_: None)
    held = 0
    for rows in ROWS:
        documents = [
            Document(str(held + i), "", {}, 0, ["x" * 400], vector[None, :])
            for i, vector in enumerate(unit_rows(rng.standard_normal((rows - held, 384))))
        ]
        held = rows
        started_s = time.perf_counter()
        for begin in range(0, len(documents), 100):
            index.upsert("t", "c", documents[begin : begin + 100], 1)
        write_rate = len(documents) / (time.perf_counter() - started_s)
        queries = unit_rows(rng.standard_normal((QUERIES, 384)))
        took_ms = []
        for query in queries:
            started_s = time.perf_counter()
            index.search("t", (), Query("x", query), 4, 1)
            took_ms.append((time.perf_counter() - started_s) * 1e3)
        print(
            f"{f'index, {rows} passages':44} search p50 {statistics.median(took_ms):.2f} ms"
            f"   writes {write_rate:.0f} documents/s (100 a batch, synced)"
        )
    index.close()
    index = EmbeddedIndex(folder, "random", 384, lambda *_: None)
    started_s = time.perf_counter()
    index.stats("t", 1)
    print(f"{f'index, first use after a start, {held} passages':44} {time.perf_counter() - started_s:.2f} s")
    index.close()


async def main() -> None:
    """All cases."""
    with tempfile.TemporaryDirectory() as folder:
        await bench_service(Path(folder, "service"))
        bench_index(Path(folder, "index"))


if __name__ == "__main__":
    asyncio.run(main())
