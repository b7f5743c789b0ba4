"""Alerts: what a flood costs and makes, and how long after a post a robot hears of it.

`python tests/bench/bench_opinion_alerts.py [--posts 10000] [--rate 200] [--seconds 30]`

The desk alone, without mesh, queue and sink: times are those that alerts add to an analysis.

`python tests/bench/bench_opinion_alerts.py --mesh [--rate 20] [--seconds 10] [--posts 10000] [--flood-rate 200]`

The whole mesh, all of it processes of their own but the model, which is replayed: from the moment when a post that
crosses a rule is taken in until a signed webhook on this machine has the alert; then a flood of posts that all do.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from prometheus_client import CollectorRegistry
from rich.console import Console

from helpers.opinion_page import MemorySink
from helpers.opinion_posts import START_MS, TENANT, make_facts, make_post, make_record
from helpers.robots import Answer, Receiver, Told, run_receiver, signed
from ssop_cli.opinion_load import LoadReport, run_load
from ssop_cli.opinion_load_mesh import LoadOptions
from ssop_cli.places import find_places
from ssop_opinion.core.alert_book import AlertBook
from ssop_opinion.core.alert_policy import AlertPolicy, Route
from ssop_opinion.desk import Desk
from ssop_opinion.desk_opening import open_desk
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


def through_mesh(options: LoadOptions, storm_alerts: int) -> tuple[LoadReport, list[tuple[int, dict[str, Any]]]]:
    """A load on a mesh of its own; its report, and what a webhook heard, with the time in Unix milliseconds."""
    heard: list[tuple[int, dict[str, Any]]] = []

    def judge(told: Told) -> Answer:
        heard.append((time.time_ns() // 1_000_000, told.document))
        return signed(SECRET, lambda: time.time_ns() // 1_000_000_000)(told)

    with tempfile.TemporaryDirectory(prefix="ssop-bench-") as name, _receiving(judge) as url:
        folder = Path(name)
        (folder / "secret").write_text(SECRET)
        (folder / "url").write_text(url)
        channel = {
            "kind": "webhook", "url_file": str(folder / "url"), "secret_file": str(folder / "secret"),
            "per_minute": 1_000_000,
        }  # fmt: skip
        alerts = {"routes": [{"channel": "hook"}], "storm_alerts": storm_alerts}
        wanted = replace(options, is_grave=True, tenant={"alerts": alerts}, opinion={"channels": {"hook": channel}})
        report = run_load(find_places(folder / "state", os.environ), wanted, Console(file=sys.stderr))
    return report, heard


@contextmanager
def _receiving(judge: Callable[[Told], Answer]) -> Iterator[str]:
    """A receiver on a loop of its own, in a thread: the load has the main one."""
    found: Future[str] = Future()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with run_receiver(judge, "/hook") as receiver:
            found.set_result(receiver.url)
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield found.result(30)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def lead_times_of_mesh(rate: float, seconds: float) -> None:
    """From door to webhook, for posts that each open an alert."""
    options = LoadOptions(rate=rate, duration_s=seconds, repost_share=0.0)
    report, heard = through_mesh(options, storm_alerts=1_000)
    leads_ms = sorted(at_ms - told["first_post_ms"] for at_ms, told in heard if told["event"] == "opened")
    if not leads_ms:
        sys.exit("no alert was heard of")
    print(
        f"mesh, {rate:g}/s for {seconds:g} s, {len(leads_ms)} alerts: door to webhook p50 {median(leads_ms):.0f} ms, "
        f"p99 {leads_ms[int(0.99 * len(leads_ms))]:.0f} ms, most {leads_ms[-1]:.0f} ms; "
        f"within 2 s {sum(lead <= 2_000 for lead in leads_ms)}; records p50 {report.steady_ms.get('p50')} ms"
    )


def flood_of_mesh(posts: int, rate: float) -> None:
    """What a flood of posts that all cross a rule makes people hear."""
    report, heard = through_mesh(LoadOptions(rate=rate, duration_s=posts / rate, repost_share=0.0), storm_alerts=20)
    events = Counter(told["event"] for _, told in heard)
    print(
        f"mesh, flood of {posts:,} posts at {rate:g}/s: {len(heard)} messages {dict(events)}; "
        f"records {report.records}, lost {report.lost}, drained in {report.drained_s} s"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the desk, or the mesh."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--posts", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=None, help="200, through the mesh 20")
    parser.add_argument("--seconds", type=int, default=None, help="30, through the mesh 10")
    parser.add_argument("--mesh", action="store_true", help="through a whole mesh")
    parser.add_argument("--flood-rate", type=float, default=200.0, help="posts of the flood a second, through the mesh")
    given = parser.parse_args(arguments)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    if given.mesh:
        lead_times_of_mesh(given.rate or 20, given.seconds or 10)
        flood_of_mesh(given.posts, given.flood_rate)
        return
    flood(given.posts, given.posts)
    flood(given.posts, 1)
    asyncio.run(lead_times(given.rate or 200, given.seconds or 30))


if __name__ == "__main__":
    main()
