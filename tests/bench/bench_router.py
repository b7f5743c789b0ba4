"""How many requests a router serves on grpc.aio, and what a decision costs: `python tests/bench/bench_router.py`.

The router is a process of its own; client, node and cache share the bench's process, so that on two cores the client
side is as much of the limit as the router. A run says both: requests per second and the router's CPU per request.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import grpc
import uvloop

from helpers.router_process import Process, run_process
from helpers.scripted_mesh import ask, encode, node_status_chunk
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.call import Call
from ssop_router.core.decision import Features, decide
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.settings import RouterSettings

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU time of a process, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def bench_decision(rounds: int = 5, calls: int = 4_000) -> dict[str, float]:
    """Microseconds of a decision over eight nodes, with the default rules and 200 characters of text."""
    settings = RouterSettings.model_validate({"keys_file": "k", "nodes": ["n"]}).decision()
    model = ModelView("m", ModelState.MODEL_STATE_READY, frozenset({Tier.TIER_LITE, Tier.TIER_FULL}), 4096, 4)
    snapshot = Snapshot(tuple(NodeView(f"n{i}", f"n{i}", (model,), 0, True, i % 3) for i in range(8)))
    features = Features(scopes=frozenset({"lite", "full", "rag"}), user_text="what is the mood of this post? " * 7)
    rng = random.Random(1)
    times = []
    for _ in range(rounds):
        started_s = time.perf_counter()
        for _ in range(calls):
            decide(features, snapshot, settings, 100, rng)
        times.append((time.perf_counter() - started_s) / calls * 1e6)
    return {"decision_us_median": round(statistics.median(times), 1), "decision_us_min": round(min(times), 1)}


async def bench_requests(mesh: Process, policy: str, clients: int, seconds: float) -> dict[str, float]:
    """Closed loop: each client asks again as soon as its answer has ended."""
    stop_s = time.perf_counter() + seconds
    latencies: list[float] = []

    async def client(number: int) -> None:
        count = 0
        call: Any = mesh.channel.unary_stream("/ssop.v1.RouterService/Generate")
        while time.perf_counter() < stop_s:
            text = f"Translate {number} {count}" if policy != "hit" else "Translate"
            request = ask(text, policy="" if policy != "no_cache" else "no_cache").SerializeToString()
            count += 1
            started_s = time.perf_counter()
            stream = call(request, timeout=20, metadata=mesh.metadata())
            while await stream.read() is not grpc.aio.EOF:
                pass
            latencies.append(time.perf_counter() - started_s)

    before_s = cpu_s(mesh.process.pid)
    started_s = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    elapsed_s = time.perf_counter() - started_s
    spent_s = cpu_s(mesh.process.pid) - before_s
    ordered = sorted(latencies)
    return {
        "requests_per_s": round(len(ordered) / elapsed_s, 1),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "router_cpu_us_per_request": round(spent_s / len(ordered) * 1e6),
    }


async def bench(clients: int, seconds: float) -> dict[str, Any]:
    """All runs."""
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "clients": clients,
        "seconds": seconds,
        **bench_decision(),
    }
    chunks = [node_status_chunk(), *encode(json.dumps({"mood": "fine", "score": 3}))]

    async def script(call: Call, _: Any) -> None:
        for chunk in chunks:
            await call.write(chunk)

    with tempfile.TemporaryDirectory() as folder:
        async with run_process(Path(folder), max_in_flight=4096, admission_timeout_ms=5_000) as mesh:
            for node in mesh.nodes.values():
                node.script = script
            for name in ("no_cache", "miss", "hit"):
                await bench_requests(mesh, name, clients, 0.5)
                results[name] = await bench_requests(mesh, name, clients, seconds)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(bench(arguments.clients, arguments.seconds)), indent=2))
