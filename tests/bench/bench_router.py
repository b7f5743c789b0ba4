"""What a request costs the router: `python tests/bench/bench_router.py [--transport native] [--profile out.prof]`.

The router is a process of its own, and so are its surroundings: a node whose answers stand ready, twelve fields in
thirteen chunks, and a cache service that never has one. Keys, admission, classifier, metrics, traces and logs are on.
Printed are requests per second and the router's CPU for each: answers that come at once, to so many clients; and
answers that come a chunk at a time, at a fixed rate, as a model writes them. `--instructions 640` also counts the
instructions of so many requests, on a router of their own under valgrind; half a minute for each number of clients.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop

from helpers.instructions import Cost, Counter, missing_counter
from helpers.router_process import keys_text
from helpers.scripted_mesh import SECRET, Keys, ScriptedCache, ScriptedNode, ask, encode, node_status_chunk
from helpers.scripted_stores import ScriptedKeyStore
from ssop.v1 import cache_pb2
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.call import Call
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector, server_starter
from ssop_router.core.decision import Features, decide
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.settings import RouterSettings

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FIELDS: Final = 12
_WARM_REQUESTS: Final = 400
SCHEMA: Final = {
    "type": "object",
    "properties": {f"field_{number}": {"type": "string", "maxLength": 64} for number in range(_FIELDS)},
    "required": [f"field_{number}" for number in range(_FIELDS)],
    "additionalProperties": False,
}
_ANSWER: Final = json.dumps({f"field_{number}": f"what field {number} says" for number in range(_FIELDS)})


def cpu_s(pid: int) -> float:
    """CPU time of a process, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class _Cache(ScriptedCache):
    """Leases for everybody, from bytes that stand ready."""

    _admitted = cache_pb2.AdmitResponse(
        outcome=cache_pb2.CacheOutcome.CACHE_OUTCOME_LEASE,
        fencing_token=7,
        limits=cache_pb2.TenantLimits(max_rps=100_000, burst=100_000),
    )
    _settled = cache_pb2.SettleResponse()

    async def admit(self, call: Call) -> None:
        await call.write(self._admitted.SerializeToString())

    async def run_batch(self, call: Call) -> None:
        response = cache_pb2.RunBatchResponse()
        for entry in cache_pb2.RunBatchRequest.FromString(call.request).entries:
            if entry.HasField("admit"):
                response.outcomes.add(admitted=self._admitted)
            else:
                outcome = response.outcomes.add(settled=self._settled)
                if entry.HasField("commit"):
                    outcome.committed.SetInParent()
        await call.write(response.SerializeToString())

    async def settle(self, call: Call) -> None:
        await call.write(b"")

    async def commit(self, call: Call) -> None:
        await call.write(b"")

    async def append(self, call: Call) -> None:
        await call.write(b"")

    async def renew(self, call: Call) -> None:
        request = cache_pb2.RenewRequest.FromString(call.request)
        response = cache_pb2.RenewResponse(leases=[cache_pb2.LeaseState() for _ in request.leases])
        await call.write(response.SerializeToString())


class _Node(ScriptedNode):
    """Remembers nothing of its requests. `pause_ms` comes in each request's first stop word, where there is one."""

    def __init__(self, name: str, tiers: Sequence[Tier.ValueType]) -> None:
        super().__init__(name, tiers)
        self.status.models[0].slots_total = 4_096
        self._status_chunk = node_status_chunk()
        self._chunks = encode(_ANSWER, schema=SCHEMA)

    async def generate(self, call: Call) -> None:
        pause_s = _pause_s(call.request)
        await call.write(self._status_chunk)
        for chunk in self._chunks:
            if pause_s:
                await asyncio.sleep(pause_s)
            await call.write(chunk)


def _pause_s(request: bytes) -> float:
    """The pause that a request asks for, in its text: `pause=MILLISECONDS;`."""
    _, mark, rest = request.partition(b"pause=")
    return int(rest[: rest.index(b";")]) / 1000 if mark else 0.0


async def serve_surroundings(folder: Path, transport: Any) -> None:
    """Serve node, cache and key store until killed."""
    start = server_starter(transport, "surroundings")
    inner = inner_authenticate(SECRET)
    lite, full = _Node("lite-1", [Tier.TIER_LITE]), _Node("full-1", [Tier.TIER_FULL])
    # A server that nobody holds is collected.
    servers = []
    for name, services in {
        "lite-1": [lite.service()],
        "full-1": [full.service()],
        "cache": [_Cache().service(), ScriptedKeyStore().service()],
    }.items():
        listen = [f"unix:{folder}/{name}.sock"]
        servers.append(await start(services, listen, authenticate=inner, max_concurrent_calls=4_096))
    await asyncio.Event().wait()


def _write_settings(folder: Path, key: str, transport: str) -> None:
    (folder / "secret").write_text(SECRET.hex())
    (folder / "keys.toml").write_text(keys_text(key))
    values = {
        "listen": [f"unix:{folder}/router.sock"],
        "nodes": [f"unix:{folder}/{name}.sock" for name in ("lite-1", "full-1")],
        "cache_address": f"unix:{folder}/cache.sock",
        "keys_file": str(folder / "keys.toml"),
        "max_in_flight": 4_096,
        "admission_timeout_ms": 5_000,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    head = f'[mesh]\nsecret_file = "{folder}/secret"\ntransport = "{transport}"\nmax_concurrent_calls = 4096\n'
    (folder / "ssop.toml").write_text(head + "[router]\n" + "\n".join(lines))


@asynccontextmanager
async def running_router(
    folder: Path, transport: Any, profile: str = "", counter: Counter | None = None
) -> AsyncIterator[tuple[int, Any, dict[str, str]]]:
    """A router process between its surroundings: its id, a peer, and the metadata of a call.

    A `profile` is written there; a `counter` can count it.
    """
    key = Keys().of()
    _write_settings(folder, key, transport)
    python = [sys.executable, *(["-m", "cProfile", "-o", profile] if profile else [])]
    command = [*python, "-m", "ssop_router.main", "--config", str(folder / "ssop.toml")]
    with (folder / "router.log").open("wb") as log:
        surroundings = subprocess.Popen([sys.executable, __file__, "--serve", str(folder), "--transport", transport])
        router = subprocess.Popen(counter.command(*command) if counter else command, stderr=log)
    peer = connector(transport)(f"unix:{folder}/router.sock")
    metadata = {"authorization": f"Bearer {key}"}
    try:
        for _ in range(600):
            try:
                await _generate(peer, _request(0, 0), metadata)
                break
            except MeshError:
                await asyncio.sleep(0.1)
        else:
            raise RuntimeError((folder / "router.log").read_text())
        yield router.pid, peer, metadata
    finally:
        await peer.close()
        router.terminate()
        await asyncio.to_thread(router.wait, 60)
        surroundings.kill()
        surroundings.wait()


_numbers = itertools.count()


def _request(pause_ms: int, _: int) -> bytes:
    text = f"Post {next(_numbers)}: the parcel was late again, and nobody answers the phone. pause={pause_ms};"
    return ask(text, schema=SCHEMA).SerializeToString()


async def _generate(peer: Any, request: bytes, metadata: dict[str, str]) -> None:
    await peer.stream("/ssop.v1.RouterService/Generate", request, _drop, timeout_s=60, metadata=metadata)


def _drop(_: bytes) -> None:
    """Takes a chunk."""


async def _closed(peer: Any, metadata: dict[str, str], clients: int, seconds: float) -> list[float]:
    """Latencies: each client asks again as soon as its answer has ended."""
    stop_s = time.perf_counter() + seconds
    latencies: list[float] = []

    async def client(number: int) -> None:
        while (started_s := time.perf_counter()) < stop_s:
            await _generate(peer, _request(0, number), metadata)
            latencies.append(time.perf_counter() - started_s)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return latencies


async def _paced(peer: Any, metadata: dict[str, str], rate: float, seconds: float, pause_ms: int) -> list[float]:
    """Latencies at a fixed rate of requests."""
    latencies: list[float] = []

    async def one() -> None:
        started_s = time.perf_counter()
        await _generate(peer, _request(pause_ms, 0), metadata)
        latencies.append(time.perf_counter() - started_s)

    begun_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begun_s + number / rate - time.perf_counter()))
            group.create_task(one())
    return latencies


async def measure(pid: int, run: Any) -> dict[str, float]:
    """A run's figures."""
    before_s, started_s = cpu_s(pid), time.perf_counter()
    ordered = sorted(await run)
    elapsed_s = time.perf_counter() - started_s
    spent_s = cpu_s(pid) - before_s
    return {
        "requests_per_s": round(len(ordered) / elapsed_s, 1),
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "router_cpu_us_per_request": round(spent_s / len(ordered) * 1e6),
    }


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


async def _ask_all(peer: Any, metadata: dict[str, str], clients: int, requests: int) -> None:
    """So many requests, `clients` at a time."""
    numbers = iter(range(requests))

    async def client() -> None:
        for number in numbers:
            await _generate(peer, _request(0, number), metadata)

    await asyncio.gather(*(client() for _ in range(clients)))


async def count_instructions(transport: str, widths: Sequence[int], requests: int) -> dict[int, Cost]:
    """The router's instructions, by how many requests there are at a time."""
    with tempfile.TemporaryDirectory(prefix="ssop-bench-") as name:
        counter = Counter(Path(name))
        async with running_router(Path(name), transport, counter=counter) as (pid, peer, metadata):
            await _ask_all(peer, metadata, max(widths), _WARM_REQUESTS)
            idle = await asyncio.to_thread(counter.count_idle, pid)
            found = {}
            for width in widths:
                with counter.counting(pid) as count:
                    await _ask_all(peer, metadata, width, requests)
                found[width] = Cost.of(count, requests, idle)
    return found


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """All runs."""
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "transport": options.transport,
        "load": os.getloadavg()[0],
        "seconds": options.seconds,
    }
    with tempfile.TemporaryDirectory(prefix="ssop-bench-") as name:
        async with running_router(Path(name), options.transport, options.profile) as (pid, peer, metadata):
            await _closed(peer, metadata, 4, 1.0)
            for clients in options.clients:
                results[f"at_once_{clients}"] = await measure(pid, _closed(peer, metadata, clients, options.seconds))
            for rate in options.rates:
                paced = _paced(peer, metadata, rate, options.seconds, options.pause_ms)
                results[f"paced_{rate}_per_s"] = await measure(pid, paced)
    if options.instructions:
        counts = await count_instructions(options.transport, options.clients, options.instructions)
        for clients, cost in counts.items():
            results[f"at_once_{clients}"] |= {
                "router_kinstr_per_request": cost.request,
                "router_kinstr_counted_s": cost.seconds,
            }
            results["router_kinstr_per_idle_second"] = cost.idle_second
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--transport", default=os.environ.get("SSOP_MESH_TRANSPORT", "native"))
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--rates", type=int, nargs="*", default=[200])
    parser.add_argument("--pause-ms", type=int, default=50, help="between two chunks of a paced answer")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--decision", action="store_true", help="only what a decision costs")
    parser.add_argument("--profile", default="", help="write a cProfile of the router there")
    parser.add_argument("--instructions", type=int, default=0, metavar="REQUESTS", help="count those of as many")
    given = parser.parse_args()
    if given.instructions and (reason := missing_counter()):
        parser.error(reason)
    if given.serve:
        uvloop.run(serve_surroundings(given.serve, given.transport))
    elif given.decision:
        print(json.dumps(bench_decision()))
    else:
        print(json.dumps(uvloop.run(bench(given)), indent=2))
