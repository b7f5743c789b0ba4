"""Admission and look-ups through the service, in this process, on two real instances: latency, and rate.

Run by name: `python tests/bench/bench_cache.py`, with `levels` for look-ups alone, and with `guards` for how near the
pairs of the guards' test set are to the embedder. Prints one line for each case, and leaves nothing behind.
"""

import asyncio
import statistics
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from helpers.cache_service import CacheClient, answer, running_cache
from helpers.near_pairs import SAME, Pair, near_pairs
from helpers.redis_server import redis_pair
from ssop_cache.core.guards import read_facts, tell_apart
from ssop_rag.embedder import E5

CALLS = 1000
CALLERS = 32
KEY = b"\1" * 32
DIM = 384

Call = Callable[[int], Awaitable[object]]


async def measure(name: str, call: Call) -> float:
    """Print the median and P99 of calls one after the other, and the rate of calls at once; the median in us."""
    for n in range(100):
        await call(n)
    took_us = []
    for n in range(100, 100 + CALLS):
        started_s = time.perf_counter()
        await call(n)
        took_us.append((time.perf_counter() - started_s) * 1e6)
    numbers = iter(range(100 + CALLS, 100 + 2 * CALLS))

    async def caller() -> None:
        for n in numbers:
            await call(n)

    started_s = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    rate = CALLS / (time.perf_counter() - started_s)
    p99_us = statistics.quantiles(took_us, n=100)[98]
    median_us = statistics.median(took_us)
    print(f"{name:26} p50 {median_us:6.0f} us   p99 {p99_us:6.0f} us   {rate:6.0f} ops/s ({CALLERS} callers)")
    return median_us


async def life(client: CacheClient, n: int) -> None:
    """All that a lone miss costs: admit, commit, settle."""
    key = n.to_bytes(32, "big")
    fence = (await client.admit(f"life{n}", key)).fencing_token
    await client.commit(key, fence, answer("x" * 500), ttl_ms=60_000)
    await client.settle(f"life{n}", 5)


async def look_up_levels() -> None:
    """The same answer from the host and from Redis, and similar ones among few and many questions."""
    medians = {}
    with redis_pair() as (state, cache):
        for name, settings in (("host", {}), ("Redis", {"local_bytes": 0})):
            async with running_cache(state, cache, **settings) as under_test:
                client = under_test.client()
                await client.store(f"first-{name}", KEY, answer("x" * 2000))
                await client.lookup(KEY)

                async def look_up(_: int, asked: CacheClient = client) -> None:
                    await asked.lookup(KEY)

                medians[name] = await measure(f"lookup, {name}, 2 kB", look_up)
        print(f"{'':24} host to Redis 1 : {medians['Redis'] / medians['host']:.1f}")
        async with running_cache(state, cache, similar_entries=2_000) as under_test:
            client = under_test.client()
            vector = struct.pack(f"<{DIM}f", *([DIM**-0.5] * DIM))
            for count in (1, 64, 256):
                scope = count.to_bytes(32, "big")
                for n in range(count):
                    key = (1_000 * count + n).to_bytes(32, "big")
                    await client.store(f"s{count}-{n}", key, answer("x" * 2000))
                    await client.put_similar(f"How far is place {n}?", key, scope_key=scope, vector=vector)

                async def find(_: int, scope: bytes = scope) -> None:
                    found = await client.find_similar("Hi, how far is place 0?", scope_key=scope, vector=vector)
                    assert found.HasField("answer")

                await measure(f"similar, {count} questions", find)
    text = "Hi, what is the refund policy for laptops after thirty days, please?"
    took_us = []
    for _ in range(CALLS):
        started_s = time.perf_counter()
        read_facts(text, b"secret")
        took_us.append((time.perf_counter() - started_s) * 1e6)
    print(f"{'facts of a question':24} p50 {statistics.median(took_us):6.0f} us")


def judge_pairs() -> None:
    """What the embedder alone would take for the same, and what the guards leave of it."""
    embedder = E5()

    def vectors(texts: list[str]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
        return dict(zip(texts, embedder.embed_query(texts), strict=True))

    def is_same(pair: Pair) -> bool:
        facts, others = read_facts(pair.first, b"secret"), read_facts(pair.second, b"secret")
        return facts is not None and others is not None and tell_apart(facts, others) is None

    for name, pairs in (("near, differ", near_pairs()), ("ask the same", list(SAME))):
        found = vectors(sorted({text for pair in pairs for text in (pair.first, pair.second)}))
        cosines = [float(found[pair.first] @ found[pair.second]) for pair in pairs]
        share = {limit: sum(cosine >= limit for cosine in cosines) / len(pairs) for limit in (0.9, 0.95, 0.98)}
        taken = sum(is_same(pair) and cosine >= 0.9 for pair, cosine in zip(pairs, cosines, strict=True))
        shares = "  ".join(f">= {limit}: {part:.1%}" for limit, part in share.items())
        print(f"{name:14} {len(pairs):5}   cosine p50 {statistics.median(cosines):.3f}   {shares}   served {taken}")
        for kind in sorted({pair.kind for pair in pairs if pair.kind}):
            of_kind = [cosine for pair, cosine in zip(pairs, cosines, strict=True) if pair.kind == kind]
            part = sum(cosine >= 0.9 for cosine in of_kind) / len(of_kind)
            print(f"  {kind:12} {len(of_kind):5}   cosine p50 {statistics.median(of_kind):.3f}   >= 0.9: {part:.1%}")


async def main() -> None:
    """All cases."""
    await look_up_levels()
    with redis_pair() as (state, cache):
        async with running_cache(state, cache, budget_tokens=10**12, max_rps=100_000, burst=1_000_000) as under_test:
            client = under_test.client()
            fence = (await client.admit("first", KEY)).fencing_token
            await client.commit(KEY, fence, answer("x" * 2000))
            await measure("admit, limits, hit 2 kB", lambda n: client.admit(f"hit{n}", KEY))
            await measure("admit, limits, miss", lambda n: client.admit(f"miss{n}", n.to_bytes(32, "little")))
        async with running_cache(state, cache) as under_test:
            client = under_test.client("nolimits")
            fence = (await client.admit("first", KEY)).fencing_token
            await client.commit(KEY, fence, answer("x" * 2000))
            await measure("admit, no limits, hit", lambda n: client.admit(f"hit{n}", KEY))
            await measure("lookup, hit", lambda _: client.lookup(KEY))
            await measure("admit + commit + settle", lambda n: life(client, n))


if __name__ == "__main__":
    if "guards" in sys.argv:
        judge_pairs()
    elif "levels" in sys.argv:
        asyncio.run(look_up_levels())
    else:
        asyncio.run(main())
