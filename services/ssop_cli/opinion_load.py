"""`ssop opinion replay`: paced load through the webhook of a mesh of its own, on the `replay` model.

The mesh is made for the run: real Redis, cache service, router, node and opinion service, each a process; only the
model is replayed, with total times that are log-normal (p50 600 ms, p99 1,200 ms unless told otherwise). Posts are sent
when they are due, whatever became of those before; what is late by the sender's own fault is said.
"""

import asyncio
import math
import os
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from ssop_cli.failure import CommandError
from ssop_cli.opinion_load_door import Door, DoorError
from ssop_cli.opinion_load_mesh import LoadOptions, load_mesh
from ssop_cli.opinion_load_posts import PostMaker, read_records
from ssop_cli.opinion_mesh import opinion_folder, webhook_secret
from ssop_cli.places import Places
from ssop_cli.report import read_report

_TICK_S: Final = 0.02
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_VECTORS: Final = "ssop_rag_query_vectors_total"
_LOOKUPS: Final = "ssop_opinion_brand_lookups_total"
_DONE: Final = "ssop_opinion_post_seconds_count"
_DEAD: Final = "ssop_opinion_dead_letters_total"
_CHILDREN: Final = ("redis-cache", "redis-state", "cache", "rag", "inference", "router", "opinion")


@dataclass(slots=True)
class Phase:
    """What became of the requests of a part of the run."""

    name: str
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    late_ms: list[float] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)


@dataclass(slots=True)
class LoadReport:
    """A run. Latencies are from the door to the sink, interpolated in buckets of 0.1 s."""

    phases: list[dict[str, Any]]
    records: int
    records_of_accepted: int
    lost: int
    dead_letters: int
    verdicts: dict[str, int]
    caches: dict[str, int]
    accuracy: dict[str, float | int | None]
    steady_ms: dict[str, float]
    all_ms: dict[str, float]
    drained_s: float
    cpu_ms_per_post: dict[str, float]
    cpu_ms_per_post_in_all: float
    query_vectors: dict[str, float]
    brand_lookups: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def run_load(places: Places, options: LoadOptions, console: Console) -> LoadReport:
    """Run a load on a mesh of its own in the state directory, which must be new. Raises CommandError."""
    if places.state.exists() and any(places.state.iterdir()):
        raise CommandError(f"{places.state} is not empty", advice="name a new folder for the run with --state-dir")
    with load_mesh(places, options, console) as url:
        return uvloop.run(Load(places, options, url, console).run())


class Load:
    """One run against a running mesh."""

    def __init__(self, places: Places, options: LoadOptions, url: str, console: Console) -> None:
        self._places = places
        self._options = options
        self._url = url
        self._console = console
        self._maker = PostMaker(options.seed, options.repost_share)
        self._accepted: set[str] = set()
        self._taken = 0

    async def run(self) -> LoadReport:
        """Send, wait until all has left the queue, and count."""
        options = self._options
        before_s = self._cpu_s()
        door = Door(self._url, webhook_secret(self._places).read_text().strip().encode())
        try:
            steady = await self._send(door, Phase("steady"), options.rate, options.duration_s)
            steady_buckets = read_latencies(await door.metrics())
            burst = await self._send(door, Phase("burst"), options.burst_rate, options.burst_s)
            ended_s = time.monotonic()
            await self._drain(door)
            drained_s = time.monotonic() - ended_s
            page = await door.metrics()
            vectors = await self._query_vectors()
        except DoorError as error:
            raise CommandError(f"the application does not answer: {error}") from error
        finally:
            door.close()
        after_s = self._cpu_s()
        kept = read_records(opinion_folder(self._places) / "records.db", self._maker.said)
        samples, all_buckets, keys = read_samples(page), read_latencies(page), kept.keys
        count = max(1, len(self._accepted))
        cpu_ms = {name: (after_s[name] - before_s.get(name, 0.0)) / count * 1000 for name in after_s}
        return LoadReport(
            phases=[_phase_json(phase) for phase in (steady, burst) if phase.sent],
            records=len(keys),
            records_of_accepted=len(self._accepted & keys),
            lost=len(self._accepted - keys),
            dead_letters=int(sum(v for k, v in samples.items() if k.startswith(_DEAD))),
            verdicts=kept.verdicts,
            caches=kept.caches,
            accuracy=kept.accuracy,
            steady_ms=quantiles_ms(steady_buckets),
            all_ms=quantiles_ms(all_buckets),
            drained_s=round(drained_s, 1),
            cpu_ms_per_post={name: round(spent_ms, 3) for name, spent_ms in cpu_ms.items()},
            cpu_ms_per_post_in_all=round(sum(cpu_ms.values()), 2),
            query_vectors=vectors,
            brand_lookups={name: value for name, value in samples.items() if name.startswith(_LOOKUPS)},
        )

    async def _send(self, door: Door, phase: Phase, rate: float, duration_s: float) -> Phase:
        began_s = time.monotonic()
        due, total = 0, int(rate * duration_s)
        tasks: set[asyncio.Task[None]] = set()
        while due < total:
            now_s = time.monotonic() - began_s
            wanted = min(total, int(now_s * rate) + 1)
            while due < wanted:
                count = min(self._options.batch, wanted - due)
                phase.late_ms.append((now_s - due / rate) * 1000)
                task = asyncio.create_task(self._post(door, phase, *self._maker.make(count)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due += count
            await asyncio.sleep(_TICK_S)
        if tasks:
            await asyncio.wait(tasks)
        return phase

    async def _post(self, door: Door, phase: Phase, ids: Sequence[str], body: bytes) -> None:
        """Send once: what is refused stays refused, since the share that is taken is what is asked."""
        phase.sent += len(ids)
        began_s = time.monotonic()
        try:
            answer = await door.post(body)
        except DoorError:
            phase.failed += len(ids)
            return
        phase.answer_ms.append((time.monotonic() - began_s) * 1000)
        taken = int(answer.get("accepted", 0))
        phase.accepted += taken
        self._taken += taken
        phase.refused += len(ids) - taken
        if taken == len(ids):
            # Of a request that was taken in part nobody knows which: those are looked up by count alone.
            self._accepted.update(ids)

    async def _drain(self, door: Door) -> None:
        deadline_s = time.monotonic() + self._options.drain_timeout_s
        while time.monotonic() < deadline_s:
            # An application that is too busy to answer is not yet done.
            with suppress(DoorError):
                page = await door.metrics()
                if add_up(page, _DONE) + add_up(page, _DEAD) >= self._taken:
                    return
            await asyncio.sleep(0.25)
        raise CommandError(f"the queue was not empty after {self._options.drain_timeout_s:.0f} s")

    async def _query_vectors(self) -> dict[str, float]:
        """How the retrieval service came to the vectors of its queries; empty without one."""
        if self._options.retrieval is None:
            return {}
        settings = tomllib.loads((self._places.state / "load.toml").read_text(encoding="utf-8"))
        async with httpx.AsyncClient(timeout=10) as client:
            reply = await client.get(f"http://{settings['mesh']['metrics_listen']['rag']}/metrics")
        return {name: value for name, value in read_samples(reply.text).items() if name.startswith(_VECTORS)}

    def _cpu_s(self) -> dict[str, float]:
        """CPU of each process of the mesh, user and system, and of this one."""
        report = read_report(self._places.report)
        children = report.children if report is not None else []
        found = {child.name: _cpu_s(child.pid) for child in children if child.name in _CHILDREN and child.pid}
        return {**found, "sender": time.process_time()}


def add_up(page: str, name: str) -> float:
    """The sum of a page's samples whose lines begin so. Reading whole pages costs what a hundred posts do."""
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))


def read_latencies(page: str) -> list[tuple[float, float]]:
    """Cumulative buckets of the time from the door to the sink: upper bound in seconds, count."""
    return [
        (float(sample.labels["le"]), sample.value)
        for family in text_string_to_metric_families(page)
        if family.name == "ssop_opinion_post_seconds"
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]


def read_samples(text: str) -> dict[str, float]:
    """Samples of a metrics page by name and label values."""
    return {
        sample.name + ("{" + ",".join(f'"{value}"' for value in sample.labels.values()) + "}" if sample.labels else ""):
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }  # fmt: skip


def quantiles_ms(buckets: Sequence[tuple[float, float]]) -> dict[str, float]:
    """p50, p95, p99 of cumulative buckets (upper bound in seconds, count), interpolated; empty without samples."""
    total = buckets[-1][1] if buckets else 0.0
    return {name: _quantile_ms(buckets, share * total) for name, share in
            (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))} if total else {}  # fmt: skip


def _quantile_ms(buckets: Sequence[tuple[float, float]], wanted: float) -> float:
    low_s, below = 0.0, 0.0
    for high_s, count in buckets:
        if count >= wanted:
            if math.isinf(high_s):
                return low_s * 1000
            return round((low_s + (high_s - low_s) * (wanted - below) / max(1e-9, count - below)) * 1000, 1)
        low_s, below = high_s, count
    return low_s * 1000


def _phase_json(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "sent": phase.sent,
        "accepted": phase.accepted,
        "refused": phase.refused,
        "failed": phase.failed,
        "accepted_share": round(phase.accepted / max(1, phase.sent), 5),
        "late_ms_p99": _list_quantile(phase.late_ms, 0.99),
        "answer_ms_p50": _list_quantile(phase.answer_ms, 0.5),
        "answer_ms_p99": _list_quantile(phase.answer_ms, 0.99),
    }


def _list_quantile(values: Sequence[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 1) if values else 0.0


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
