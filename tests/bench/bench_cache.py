"""Admission through the service, in this process, on two real instances: latency alone, and rate with many callers.

Run by name: `python tests/bench/bench_cache.py`. Prints one line for each case, and leaves nothing behind.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.cache_service import CacheClient, answer, running_cache
from helpers.redis_server import redis_pair

CALLS = 2000
CALLERS = 32
KEY = b"\1" * 32

Call = Callable[[int], Awaitable[object]]


async def measure(name: str, call: Call) -> None:
    """Print the median and P99 of calls one after the other, and the rate of calls at once."""
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
    print(f"{name:24} p50 {median_us:6.0f} us   p99 {p99_us:6.0f} us   {rate:6.0f} ops/s ({CALLERS} callers)")


async def life(client: CacheClient, n: int) -> None:
    """All that a lone miss costs: admit, commit, settle."""
    key = n.to_bytes(32, "big")
    fence = (await client.admit(f"life{n}", key)).fencing_token
    await client.commit(key, fence, answer("x" * 500), ttl_ms=60_000)
    await client.settle(f"life{n}", 5)


async def main() -> None:
    """All cases."""
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
    asyncio.run(main())
