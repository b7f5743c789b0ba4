"""The whole path of a request, every service a process of its own: `make bench-mesh`. See docs/benchmarks/mesh.md.

A null model answers 12 frames at once; keys, limits, admission script, cache (always a miss), classifier, codec and
metrics are on, retrieval is off. In the same run: a bare echo of the same frames, TLS, two routers, a model that takes
24 ms, the grpc.aio transport, and LiteLLM's proxy; and, with valgrind, the instructions of each service.
BENCH_SECONDS: how long each load lasts, 5 unless given; BENCH_PEERS: where peers are installed.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from helpers import null_upstream, peers
from helpers.bench_mesh import BenchMesh, Transport, record_answer, run_bench_mesh
from helpers.disk import measure_sync_floor
from helpers.echo_server import running_echo
from helpers.instructions import Cost, Counter, missing_counter
from helpers.load_figures import LoadOrder
from helpers.load_generator import run_order
from helpers.load_requests import FRAMES, TOKENS
from helpers.load_table import Bar, Row, describe_machine, print_rows, write_rows
from ssop_cli.embedded import free_port

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "5"))
TOKEN_MS: Final = 2.0
MODEL_MS: Final = TOKEN_MS * TOKENS
PARTS: Final = ("native", "floor", "paced", "tls", "two", "grpc", "litellm", "instructions")
COUNTED: Final = ("router", "cache", "inference")
COUNTED_REQUESTS: Final = 640
COUNT_LIMIT_S: Final = 300.0
NATIVE: Final = Bar(rate=10_000)
STOCK: Final = Bar(rate=4_000)
OVERHEAD: Final = Bar(p50_ms=0.6, p99_ms=1.5)
PACED: Final = Bar(p99_ms=MODEL_MS + 8)


class Bench:
    """Runs loads and keeps their rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.costs: dict[str, Cost] = {}

    def measure(self, path: str, transport: str, order: LoadOrder, *, bar: Bar | None = None) -> None:
        """One load, in a process of its own."""
        row = Row(path, transport, order, run_order(order), bar or Bar())
        self.rows.append(row)
        state = "saturated" if row.result.is_saturated else f"p50 {row.result.p50_ms:.2f} ms"
        print(f"{path} ({transport}): {row.load}: {row.result.rate:,.0f}/s, {state}", file=sys.stderr, flush=True)


def base_order(mesh: BenchMesh) -> LoadOrder:
    """A load of a mesh that only wants its shape."""
    return LoadOrder("native", mesh.targets, key=mesh.key, pids=mesh.pids, seconds=SECONDS, ca_file=mesh.ca_file)


@contextmanager
def warm_mesh(
    transport: Transport, *, wait_ms: float = 0.0, routers: int = 1, has_tls: bool = False
) -> Iterator[BenchMesh]:
    """A mesh that has answered some hundred requests."""
    with (
        tempfile.TemporaryDirectory(prefix="ssop-bench-") as name,
        run_bench_mesh(Path(name), transport, wait_ms=wait_ms, routers=routers, has_tls=has_tls) as mesh,
    ):
        run_order(replace(base_order(mesh), width=16, seconds=1.0))
        yield mesh


def measure_native(bench: Bench, *, has_floor: bool) -> None:
    """The mesh on the native transport, and the floor below it."""
    with warm_mesh("native") as mesh:
        order = base_order(mesh)
        for width in (1, 16, 64, 256):
            bench.measure("mesh", "native", replace(order, width=width), bar=NATIVE if width == 64 else None)
        bench.measure("mesh", "native", replace(order, client="grpc"), bar=STOCK)
        bench.measure("mesh", "native", replace(order, rate=100))
        bench.measure("mesh", "native", replace(order, rate=1_000), bar=OVERHEAD)
        messages = asyncio.run(record_answer(mesh))
    if not has_floor:
        return
    with tempfile.TemporaryDirectory() as name, running_echo(Path(name), messages) as (address, pid):
        floor = replace(order, targets=[address], pids={"echo": pid})
        for width in (1, 16, 64):
            bench.measure("bare echo", "native", replace(floor, width=width))
        bench.measure("bare echo", "native", replace(floor, client="grpc"))
        bench.measure("bare echo", "native", replace(floor, rate=1_000))


def measure_paced(bench: Bench) -> None:
    """A model that takes 24 ms; what is above that is the mesh's."""
    with warm_mesh("native", wait_ms=TOKEN_MS) as mesh:
        order = replace(base_order(mesh), max_in_flight=512)
        bench.measure(f"mesh, model of {MODEL_MS:.0f} ms", "native", replace(order, rate=100))
        bench.measure(f"mesh, model of {MODEL_MS:.0f} ms", "native", replace(order, rate=3_000), bar=PACED)


def measure_tls(bench: Bench) -> None:
    """Clients over TLS."""
    with warm_mesh("native", has_tls=True) as mesh:
        for width in (16, 64):
            bench.measure("mesh, TLS", "native", replace(base_order(mesh), width=width))


def measure_two(bench: Bench) -> None:
    """Two routers, of which each client's connections are to both."""
    with warm_mesh("native", routers=2) as mesh:
        for width in (64, 256):
            bench.measure("mesh, two routers", "native", replace(base_order(mesh), width=width))


def measure_grpc(bench: Bench) -> None:
    """The reference transport, on every hop."""
    with warm_mesh("grpc") as mesh:
        order = base_order(mesh)
        for width in (16, 64):
            bench.measure("mesh", "grpc.aio", replace(order, width=width))
        bench.measure("mesh", "grpc.aio", replace(order, client="grpc"))
        for rate in (100, 1_000):
            bench.measure("mesh", "grpc.aio", replace(order, rate=rate))


def count_instructions(bench: Bench) -> None:
    """Instructions of each service for each request, in a mesh of its own, where the others run as ever."""
    if reason := missing_counter():
        print(reason, file=sys.stderr)
        return
    for service in COUNTED:
        with tempfile.TemporaryDirectory(prefix="ssop-bench-") as name:
            folder, counter = Path(name), Counter(Path(name))
            python = counter.interpreter(f"ssop_{service}.main")
            with run_bench_mesh(folder, "native", store_mib=8, python=python) as mesh:
                order = replace(base_order(mesh), width=64, warm_s=0.0, seconds=COUNT_LIMIT_S, count=COUNTED_REQUESTS)
                run_order(order)
                with counter.counting(mesh.pids[service]) as count:
                    result = run_order(order)
                idle = counter.count_idle(mesh.pids[service])
        if result.failed or result.done != COUNTED_REQUESTS:
            raise AssertionError(f"{service}: {result.done} of {COUNTED_REQUESTS} requests were answered")
        cost = bench.costs[service] = Cost.of(count, result.done, idle)
        print(f"{service}: {cost}", file=sys.stderr, flush=True)


def measure_litellm(bench: Bench) -> None:
    """LiteLLM's proxy in front of a server that costs next to nothing and streams a piece for each frame."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, upstream, port = Path(name), free_port(), free_port()
        command = [sys.executable, str(null_upstream.__file__), str(upstream), str(FRAMES)]
        page = f"http://127.0.0.1:{upstream}/v1/models"
        upstream_pid = stack.enter_context(peers.running(command, page, {}, folder / "upstream.log"))
        try:
            pid = stack.enter_context(peers.litellm(f"http://127.0.0.1:{upstream}", port, folder))
        except peers.PeerError as error:
            print(f"without litellm: {error}", file=sys.stderr)
            return
        pids = {"proxy": pid, "upstream": upstream_pid}
        order = LoadOrder("http", [f"127.0.0.1:{port}"], key=peers.LITELLM_KEY, pids=pids, seconds=SECONDS)
        run_order(replace(order, width=4, seconds=1.0))
        for width in (16, 64):
            bench.measure("litellm 1.108.7", "HTTP/1.1", replace(order, width=width))
        bench.measure("litellm 1.108.7", "HTTP/1.1", replace(order, rate=100, max_in_flight=64))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="", metavar="FILE", help="write the figures as JSON; - for standard output")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}; floor comes with native")
    given = parser.parse_args()
    parts = given.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there are no parts {', '.join(sorted(unknown))}")
    # Two of them are in each answer: the admission's and the settlement's.
    machine = {**describe_machine(), "seconds": SECONDS, "synced append, ms": str(measure_sync_floor())}
    bench = Bench()
    if {"native", "floor"} & set(parts):
        measure_native(bench, has_floor="floor" in parts)
    for part, measure in (
        ("paced", measure_paced),
        ("tls", measure_tls),
        ("two", measure_two),
        ("grpc", measure_grpc),
        ("litellm", measure_litellm),
        ("instructions", count_instructions),
    ):
        if part in parts:
            measure(bench)
    console = Console(stderr=given.json == "-", width=None if sys.stdout.isatty() else 220)
    print_rows(bench.rows, machine, console, bench.costs)
    if given.json:
        write_rows(given.json, bench.rows, machine, bench.costs)


if __name__ == "__main__":
    # So that whoever stops it stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except (subprocess.SubprocessError, AssertionError) as error:
        sys.exit(f"a process does not run: {error}")
