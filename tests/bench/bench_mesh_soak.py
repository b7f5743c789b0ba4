"""What the mesh costs at any rate, what idle sessions hold, and whether anything grows: `make bench-mesh-soak`.

Three parts on the mesh of bench_mesh.py: CPU for each request from 100 a second until it is saturated, and of a bare
echo of the same answer, which says what an idle machine costs whoever runs on it; 10,000 open sessions that ask
nothing; requests for `--minutes` or until there were `--soak` of them, with the memory of each process. See
docs/benchmarks/mesh.md. BENCH_SECONDS: how long each rate lasts, 5 unless given.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from helpers.bench_mesh import CALLS, BenchMesh, record_answer, run_bench_mesh
from helpers.echo_server import running_echo
from helpers.idle_sessions import IdleSessions
from helpers.load_figures import LoadOrder, growth, judge_rates
from helpers.load_generator import run_order
from helpers.load_pace import cpu_s, rss_bytes
from helpers.load_table import Row, describe_machine, print_rows, write_rows

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "5"))
RATES: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
PARTS: Final = ("rates", "sessions", "soak")
SESSIONS_MB: Final = 100.0
GROWTH_MB: Final = 1.0
PER: Final = 10_000
MB: Final = 1_000_000
STORE_MIB: Final = 8
"""So that what is kept of answers is full soon: it is bounded, and no growth."""
_AT_ONCE: Final = 100
_CONNECTIONS: Final = 20
_ANSWER_S: Final = 60.0
_IDLE_S: Final = 10.0
_SAMPLES: Final = 200
_SKIPPED: Final = 0.5
"""Share of a soak in which stores and caches fill; what grows after it grows for good."""


def base_order(mesh: BenchMesh) -> LoadOrder:
    """A load of a mesh that only wants its shape."""
    return LoadOrder("native", mesh.targets, key=mesh.key, pids=mesh.pids, seconds=SECONDS)


def measure_rates(path: str, transport: str, base: LoadOrder) -> list[Row]:
    """Open loops, each at a higher rate than the one before, until one is more than can be done."""
    rows = []
    run_order(replace(base, width=16, seconds=1.0))
    for rate in RATES:
        order = replace(base, rate=float(rate))
        rows.append(Row(path, transport, order, run_order(order)))
        print(f"{path}: {rate}/s: {rows[-1].result.total_cpu_us:,.0f} us", file=sys.stderr, flush=True)
        if rows[-1].result.is_saturated:
            break
    return rows


def measure_floor(mesh: BenchMesh) -> list[Row]:
    """The same rates, of a server that answers at once what the mesh answered."""
    messages = asyncio.run(record_answer(mesh))
    with tempfile.TemporaryDirectory() as name, running_echo(Path(name), messages) as (address, pid):
        return measure_rates("bare echo", "native", replace(base_order(mesh), targets=[address], pids={"echo": pid}))


def judge_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """What each rate that was had costs, and how much more the dearest than the cheapest."""
    return judge_rates({row.order.rate: row.result.total_cpu_us for row in rows if is_kept(row)})


def is_kept(row: Row) -> bool:
    """Whether the rate of a row was had."""
    return not row.result.is_saturated and not row.result.failed


async def measure_sessions(mesh: BenchMesh, count: int) -> dict[str, Any]:
    """Open sessions, let them be, and see that each still answers."""
    pid = mesh.pids["router"]
    held = await IdleSessions.connect(mesh.targets[0], mesh.key, _CONNECTIONS)
    try:
        await held.open(_AT_ONCE, _AT_ONCE, _ANSWER_S)
        before_bytes = rss_bytes(pid)
        await held.open(count - _AT_ONCE, _AT_ONCE, _ANSWER_S)
        opened_bytes, began_s = rss_bytes(pid), cpu_s(pid)
        # What a router does for sessions that ask nothing.
        await asyncio.sleep(_IDLE_S)
        idle_cpu = (cpu_s(pid) - began_s) / _IDLE_S
        await held.ask_all(_AT_ONCE, _ANSWER_S)
        after_bytes = rss_bytes(pid)
        is_open = sum(session.is_open for session in held.sessions)
    finally:
        held.close()
    grown_mb = (after_bytes - before_bytes) / MB
    return {
        "sessions": is_open,
        "rss_before_mb": round(before_bytes / MB, 1),
        "rss_opened_mb": round(opened_bytes / MB, 1),
        "rss_after_mb": round(after_bytes / MB, 1),
        "kb_each": round((after_bytes - before_bytes) / 1000 / max(1, count - _AT_ONCE), 2),
        "idle_cores": round(idle_cpu, 4),
        "is_within": grown_mb < SESSIONS_MB,
    }


def measure_soak(mesh: BenchMesh, transport: str, count: int, minutes: float, width: int) -> tuple[Row, dict[str, Any]]:
    """Requests without a pause; how each process grew after the first half."""
    order = replace(
        base_order(mesh), width=width, seconds=60 * minutes, count=count, sample_s=max(0.5, 60 * minutes / _SAMPLES)
    )
    row = Row("soak", transport, order, run_order(order))
    grown = {name: round(size / MB, 3) for name, size in growth(row.result.samples, PER, _SKIPPED).items()}
    first, last = row.result.samples[0][1], row.result.samples[-1][1]
    return row, {
        "requests": row.result.done,
        "failed": row.result.failed,
        "mb_per_10000": grown,
        "rss_mb": {name: [round(first[name] / MB, 1), round(last[name] / MB, 1)] for name in last},
        "is_within": all(size < GROWTH_MB for size in grown.values()),
    }


def print_facts(title: str, facts: dict[str, Any], console: Console) -> None:
    """A table of two columns."""
    table = Table("what", "value", title=title)
    for name, value in facts.items():
        shown = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else value
        table.add_row(name, str(shown))
    console.print(table)


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="", metavar="FILE", help="write the figures as JSON; - for standard output")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--transport", default="native", choices=("native", "inner", "grpc"))
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--soak", type=int, default=1_000_000, help="requests after which a soak ends")
    parser.add_argument("--minutes", type=float, default=2.0, help="time after which it ends; 30 for the whole one")
    parser.add_argument("--width", type=int, default=32, help="requests of a soak at the same time")
    given = parser.parse_args()
    parts = given.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there are no parts {', '.join(sorted(unknown))}")
    machine, rows, facts = {**describe_machine(), "seconds": SECONDS}, [], {}
    with (
        tempfile.TemporaryDirectory(prefix="ssop-bench-") as name,
        run_bench_mesh(Path(name), given.transport, calls=given.sessions + CALLS, store_mib=STORE_MIB) as mesh,
    ):
        if "rates" in parts:
            for title, found in (
                ("rates", measure_rates("mesh", given.transport, base_order(mesh))),
                ("rates of a bare echo", measure_floor(mesh)),
            ):
                rows += found
                facts[title] = judge_rows(found)
        if "sessions" in parts:
            facts["sessions"] = uvloop.run(measure_sessions(mesh, given.sessions))
        if "soak" in parts:
            row, facts["soak"] = measure_soak(mesh, given.transport, given.soak, given.minutes, given.width)
            rows.append(row)
    console = Console(stderr=given.json == "-", width=None if sys.stdout.isatty() else 220)
    if rows:
        print_rows(rows, machine, console)
    for title, fact in facts.items():
        print_facts(title, fact, console)
    if given.json:
        write_rows(given.json, rows, {**machine, **facts})


if __name__ == "__main__":
    # So that whoever stops it stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except (subprocess.SubprocessError, AssertionError) as error:
        sys.exit(f"a process does not run: {error}")
