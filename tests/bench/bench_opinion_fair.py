"""One tenant floods, another sends a post a second.

`python tests/bench/bench_opinion_fair.py [--seconds 30] [--times 10] [--slots 32] [--takes-s 0.5]`

Door, queue (a real Redis with `appendfsync always`), worker and SQLite in one process; an analysis takes so long and
costs nothing, and so many run at the same time. Printed is how long the second tenant's posts take from the door to the
sink, alone and beside a flood of ten times what can be analysed; and what became of the flood.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.opinion import (
    GOOD,
    TENANT,
    NotingDesk,
    ScriptedAnalyst,
    make_settings,
    make_tenant,
    parts,
    posts,
    running,
    working,
)
from helpers.redis_server import RedisServer
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.intake import Origin
from ssop_opinion.ports import OnField
from ssop_opinion.process import OpinionProcess
from ssop_opinion.queue import QUEUED, REFUSED

QUIET = "quiet"
FLOOD_BATCH = 50


class SlowAnalyst(ScriptedAnalyst):
    """Takes its time."""

    def __init__(self, takes_s: float) -> None:
        super().__init__()
        self._takes_s = takes_s

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        await asyncio.sleep(self._takes_s)
        return GOOD


class Clock(NotingDesk):
    """Notes when records of posts are in the sink."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: dict[str, float] = {}
        self.counts: Counter[str] = Counter()

    async def record_stored(self, record: Record, now_ms: int) -> None:
        self.counts[record.post.tenant] += 1
        if record.post.tenant == QUIET:
            self.at_s[record.key] = time.monotonic()


async def flood(process: OpinionProcess, rate: float, outcomes: Counter[int]) -> None:
    """Send so many posts a second until cancelled, without waiting for room."""
    began_s, sent = time.monotonic(), 0
    while True:
        made = posts(FLOOD_BATCH, seed=sent + 1)
        outcomes.update((await process.intake.append(made, Origin(TENANT, "crm", "webhook"))).outcomes)
        sent += FLOOD_BATCH
        await asyncio.sleep(max(0.0, began_s + sent / rate - time.monotonic()))


async def trickle(process: OpinionProcess, clock: Clock, seconds: int) -> list[float]:
    """Send a post a second; how long each took, in seconds."""
    sent_s: dict[str, float] = {}
    for post in posts(seconds, tenant=QUIET, seed=time.monotonic_ns()):
        await process.intake.append([post], Origin(QUIET, "crm", "webhook"))
        sent_s[post.key] = time.monotonic()
        await asyncio.sleep(1)
    deadline_s = time.monotonic() + 300
    while not sent_s.keys() <= clock.at_s.keys() and time.monotonic() < deadline_s:
        await asyncio.sleep(0.05)
    return sorted(clock.at_s[key] - at_s for key, at_s in sent_s.items() if key in clock.at_s)


async def measure(given: argparse.Namespace, *, has_flood: bool) -> dict[str, Any]:
    """One run on a Redis of its own."""
    capacity = given.slots / given.takes_s
    outcomes: Counter[int] = Counter()
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="ssop-bench-") as name, RedisServer("state") as redis:
        folder = Path(name)
        make_settings(folder, redis.url)
        make_tenant(folder / "tenants", QUIET)
        made = parts(SlowAnalyst(given.takes_s), clock)
        async with running(folder, redis, made, max_analyses=given.slots) as (process, _), working(process):
            sender = asyncio.create_task(flood(process, given.times * capacity, outcomes)) if has_flood else None
            if sender is not None:
                await asyncio.sleep(given.lead_s)
            took_s = await trickle(process, clock, given.seconds)
            if sender is not None:
                sender.cancel()
            queued, _ = await process.queue.sizes()
    return {
        "quiet_records": len(took_s), **spread(took_s), "flood_queued": outcomes[QUEUED],
        "flood_refused": outcomes[REFUSED], "flood_records": clock.counts[TENANT], "left_in_the_queue": queued,
    }  # fmt: skip


def spread(took_s: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and longest, in milliseconds."""
    if not took_s:
        return {}
    at = {"p50_ms": median(took_s), "p95_ms": took_s[int(0.95 * (len(took_s) - 1))], "max_ms": took_s[-1]}
    return {name: round(value * 1_000, 1) for name, value in at.items()}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="posts of the quiet tenant, one a second")
    parser.add_argument("--times", type=float, default=10, help="the flood, in times of what can be analysed")
    parser.add_argument("--slots", type=int, default=32, help="analyses at the same time")
    parser.add_argument("--takes-s", type=float, default=0.5, help="seconds of an analysis")
    parser.add_argument("--lead-s", type=float, default=5, help="seconds that the flood has before")
    given = parser.parse_args()
    machine = f"{os.cpu_count()} CPUs, {platform.processor() or platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, "analyses_per_s": given.slots / given.takes_s}))
    alone = asyncio.run(measure(given, has_flood=False))
    print(json.dumps({"flood": "none", **alone}), flush=True)
    beside = asyncio.run(measure(given, has_flood=True))
    print(json.dumps({"flood": f"{given.times:g} times", **beside}), flush=True)
    if alone.get("p50_ms") and beside.get("p50_ms"):
        ratios = {name: round(beside[name] / alone[name], 2) for name in ("p50_ms", "p95_ms", "max_ms")}
        print(json.dumps({"ratio": ratios}))


if __name__ == "__main__":
    main()
