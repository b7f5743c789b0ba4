"""Alerts: what a flood costs and makes, and how long after a post a robot hears of it.

`python tests/bench/bench_opinion_alerts.py [--posts 10000] [--rate 200] [--seconds 30]`

The desk alone, without mesh, queue and sink: times are those that alerts add to an analysis.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from prometheus_client import CollectorRegistry

from helpers.opinion_page import MemorySink
from helpers.opinion_posts import START_MS, TENANT, make_facts, make_post, make_record
from helpers.robots import Receiver, run_receiver, signed
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy, Route
from ssop_opinion.desk import Desk, open_desk
from ssop_opinion.settings import ChannelSettings, OpinionSettings
from ssop_opinion.tenants import Tenant, Tenants
from ssop_opinion.wiring import Setup

SECRET = "a secret of more than 16 bytes"


def flood(posts: int, entities: int) -> None:
    """Judge posts as fast as it goes: each once by its fields, once by its record."""
    book = AlertBook(TENANT, AlertPolicy())
    made = [
        [
            make_facts(str(n), at_ms=START_MS + n * 5, main_entity=f"e{n % entities}", is_final=last)
            for last in (False, True)
        ]
        for n in range(posts)
    ]
    events: Counter[str] = Counter()
    began_s = time.process_time()
    for number, both in enumerate(made):
        for facts in both:
            events.update(one.event for one in book.judge(facts, START_MS + number * 5))
        if number % 50 == 0:
            book.take_changes()
    took_s = time.process_time() - began_s
    events.update(one.event for one in book.tick(START_MS + posts * 5 + 600_000))
    told = sum(count for event, count in events.items() if event not in {"confirmed", "expired"})
    print(
        f"flood of {posts:,} posts, {entities:,} entities: {1e6 * took_s / posts:.0f} us of CPU a post; "
        f"{told} messages {dict(events)}; {book.windows.size:,} posts remembered"
    )


async def lead_times(rate: int, seconds: int) -> None:
    """Posts at a rate, one in twenty grave and about an entity of its own; from its last field to its receiver."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret").write_text(SECRET)
        async with run_receiver(signed(SECRET, lambda: time.time_ns() // 1_000_000_000), "/hook") as receiver:
            (folder / "url").write_text(receiver.url)
            await _run(folder, receiver, rate, seconds)


async def _run(folder: Path, receiver: Receiver, rate: int, seconds: int) -> None:
    channel = ChannelSettings(
        kind="webhook", url_file=folder / "url", secret_file=folder / "secret", per_minute=1_000_000
    )
    settings = OpinionSettings(
        state_directory=folder, tenants_directory=folder, stream_url="redis://x", channels={"hook": channel}
    )
    policy = AlertPolicy(routes=(Route(channel="hook"),), storm_alerts=1_000)
    tenants = Tenants({TENANT: Tenant(name=TENANT, api_key_file=folder / "url", alerts=policy)})
    sent_s: dict[str, float] = {}
    heard_s: dict[str, float] = {}
    cpu_s = time.process_time()
    async with open_desk(Setup(settings, tenants, CollectorRegistry()), MemorySink()) as desk:
        began_s = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.perf_counter()))
            task = asyncio.create_task(_take(desk, number, sent_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            _hear(receiver, heard_s)
        await asyncio.gather(*tasks)
        while len(heard_s) < len(sent_s):
            await asyncio.sleep(0.001)
            _hear(receiver, heard_s)
    took_s = time.process_time() - cpu_s
    leads_ms = sorted(1_000 * (heard_s[name] - sent_s[name]) for name in sent_s)
    print(
        f"{rate}/s for {seconds} s, {len(leads_ms)} alerts: post to receiver p50 {median(leads_ms):.1f} ms, "
        f"p99 {leads_ms[int(0.99 * len(leads_ms))]:.1f} ms, most {leads_ms[-1]:.1f} ms; "
        f"{1e6 * took_s / (rate * seconds):.0f} us of CPU a post, receiver included"
    )


async def _take(desk: Desk, number: int, sent_s: dict[str, float]) -> None:
    is_grave = number % 20 == 0
    values = {"main_entity": f"e{number}"} if is_grave else {"sentiment_label": "positive", "sentiment_score": 3}
    record = make_record(make_post(str(number), at_ms=time.time_ns() // 1_000_000), **values)
    if is_grave:
        sent_s[f"e{number}"] = time.perf_counter()
    for name, value in record.analysis.fields.items():
        desk.field_arrived(record.post, name, value, record.post.received_ms)
    await desk.record_stored(record, record.post.received_ms)


def _hear(receiver: Receiver, heard_s: dict[str, float]) -> None:
    for told in receiver.taken[len(heard_s) :]:
        heard_s.setdefault(told.document["entity"], time.perf_counter())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--posts", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=30)
    given = parser.parse_args(arguments)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    flood(given.posts, given.posts)
    flood(given.posts, 1)
    asyncio.run(lead_times(given.rate, given.seconds))


if __name__ == "__main__":
    main()
