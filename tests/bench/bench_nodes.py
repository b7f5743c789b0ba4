"""What a post costs the cache service, Redis, a node and the retrieval service: CPU by process, at a steady rate.

Run by name: `python tests/bench/bench_nodes.py [cache] [inference] [rag] [--rate 200] [--seconds 10]`. Each service is
a process of its own, called over `SSOP_MESH_TRANSPORT` as a router calls it for one post of the opinion load: an exact
miss with a commit and a settlement; an answer of the replayed model (600 ms, 40 tokens; 12 tokens as in `make
bench-mesh`); a look-up of a question that nobody asked before, and one of a question that is known. Prints milliseconds
of CPU per post; of the node also its messages, its calls that write, and how often it is woken. With
`--callers` as many call in turn, as fast as they are served: a crowd, whose figures hold on a loaded machine too. With
`--together` so many requests travel in each call of the cache service, as those of a busy router do. Of the cache
service it prints, for each request, wake-ups, scripts, commands, turns of Redis' loop and bytes of its log.
"""

import argparse
import asyncio
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import load_requests
from helpers.cache_service import answer
from helpers.live_mesh import wait_until
from helpers.redis_server import RedisServer, redis_pair
from ssop.v1 import cache_pb2, content_pb2, inference_pb2, mesh_pb2, rag_pb2
from ssop.v1.frame_pb2 import VERDICT_OK, Chunk
from ssop_chassis.identity import PRINCIPAL_METADATA, RESERVED_TENANT, Principal, Signer
from ssop_chassis.serving import wall_clock_ms
from ssop_chassis.transport import ConnectedPeer, Kind, connector
from ssop_cli.embedded import dump_toml
from ssop_cli.opinion_load_mesh import LoadOptions, write_recording
from ssop_opinion.core.prompt import build_messages
from ssop_opinion.prompting import post_schema, shipped_prompts

TRANSPORT: Kind = "grpc" if os.environ.get("SSOP_MESH_TRANSPORT") == "grpc" else "native"
TENANT = Principal("bench", "key", frozenset({"rag", "lite"}))
ANSWER = answer("x" * 700)
Life = Callable[[int], Awaitable[None]]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """Services in a folder, and a caller."""

    def __init__(self, folder: Path, rate: float, seconds: float, callers: int, together: int = 1) -> None:
        self.folder = folder
        self.rate = rate
        self.seconds = seconds
        self.callers = callers
        self.together = together
        self._secret = secrets.token_bytes(32)
        (folder / "secret").write_text(self._secret.hex())
        (folder / "secret").chmod(0o600)

    @contextmanager
    def running(self, name: str, settings: dict[str, Any]) -> Iterator[int]:
        """A service; its process id."""
        path = self.folder / f"{name}.sock"
        document = {
            "mesh": {"secret_file": str(self.folder / "secret"), "transport": TRANSPORT},
            name: {"listen": [f"unix:{path}"], **settings},
        }
        config = self.folder / f"{name}.toml"
        config.write_text(dump_toml(document))
        command = [sys.executable, "-m", f"ssop_{name}.main", "--config", str(config)]
        process = subprocess.Popen(
            command, env={**os.environ, "SSOP_MESH_TRANSPORT": TRANSPORT, "SSOP_MESH_LOG_LEVEL": "error"}
        )
        try:
            wait_until(path.exists, 60, f"{name} listens")
            yield process.pid
        finally:
            process.terminate()
            process.wait()

    def peer(self, name: str) -> tuple[ConnectedPeer, dict[str, str | bytes]]:
        """A connection, and the metadata of its calls."""
        return connector(TRANSPORT)(f"unix:{self.folder / name}.sock"), self.sign(TENANT)

    def sign(self, principal: Principal) -> dict[str, str | bytes]:
        """The metadata of a call."""
        return dict(Signer(self._secret, "bench", wall_clock_ms).metadata(principal))

    async def measure(
        self,
        what: str,
        life: Life,
        pids: dict[str, int],
        *,
        each: int = 1,
        servers: Sequence[RedisServer] = (),
        messages: Callable[[], int] | None = None,
    ) -> None:
        """Run lives at the rate, of `each` requests; print what one costs. `messages`: how many have come in all."""
        await asyncio.gather(*(life(n) for n in range(1, 21)))
        before_s = {name: cpu_s(pid) for name, pid in pids.items()}
        counted = count_all(pids, servers, messages)
        count = int(self.rate * self.seconds) // each
        started_s = time.perf_counter()
        took_ms: list[float] = []

        async def timed(number: int) -> None:
            began_s = time.perf_counter()
            await life(number)
            took_ms.append((time.perf_counter() - began_s) * 1000)

        numbers = iter(range(1_000, 1_000 + count))

        async def call() -> None:
            for number in numbers:
                await timed(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.callers):
                group.create_task(call())
            for number in numbers if not self.callers else ():
                await asyncio.sleep(max(0.0, started_s + (number - 1_000) / self.rate - time.perf_counter()))
                group.create_task(timed(number))
        posts = count * each
        costs = "  ".join(f"{name} {(cpu_s(pid) - before_s[name]) / posts * 1000:.3f}" for name, pid in pids.items())
        p50, p99 = statistics.median(took_ms), statistics.quantiles(took_ms, n=100)[98]
        print(f"{what:22} {costs} ms of CPU a post   {p50:.1f} / {p99:.1f} ms p50 / p99", flush=True)
        if servers or messages:
            counts = count_all(pids, servers, messages)
            rose = {name: (number - counted[name]) / posts for name, number in counts.items()}
            print(" " * 23 + "  ".join(f"{name} {number:.2f}" for name, number in rose.items()), flush=True)


def count_all(
    pids: dict[str, int], servers: Sequence[RedisServer], messages: Callable[[], int] | None = None
) -> dict[str, float]:
    """Wake-ups of processes; of each Redis, the state first: scripts, commands, turns of the loop, bytes of the log.

    Of one whose `messages` are counted, these, and its calls that write.
    """
    found: dict[str, float] = {}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text()
        found[f"{name} wakes"] = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    for name, server in zip(("state", "cache"), servers, strict=False):
        commands = server.ask("INFO", "commandstats")
        calls = {command.removeprefix("cmdstat_"): row["calls"] for command, row in commands.items()}
        stats = server.ask("INFO", "stats")
        found[f"{name} scripts"] = calls.get("evalsha", 0) + calls.get("eval", 0)
        found[f"{name} commands"] = sum(calls.values())
        found[f"{name} turns"] = stats.get("eventloop_cycles", 0)
    if messages is not None:
        (pid,) = pids.values()
        written = Path(f"/proc/{pid}/io").read_text().partition("syscw:")[2].split()[0]
        return {**found, "writes": int(written), "messages": messages()}
    found["log bytes"] = servers[0].ask("INFO", "persistence").get("aof_current_size", 0) if servers else 0
    return found


def pid_of(server: RedisServer) -> int:
    """The process of a Redis."""
    return int(server.ask("INFO", "server")["process_id"])


async def bench_cache(bench: Bench, stack: ExitStack) -> None:
    """An exact miss of 600 ms, and a hit."""
    state, cache = stack.enter_context(redis_pair())
    pid = stack.enter_context(
        bench.running("cache", {"state_url": state.url, "cache_url": cache.url, "redis_timeout_ms": 1_000})
    )
    peer, metadata = bench.peer("cache")

    async def call(name: str, request: Any, response: Any) -> Any:
        path = f"/ssop.v1.CacheService/{name}"
        return response.FromString(await peer.unary(path, request.SerializeToString(), timeout_s=30, metadata=metadata))

    own = bench.sign(Principal(RESERVED_TENANT, "router"))
    principal = metadata[PRINCIPAL_METADATA]
    assert isinstance(principal, bytes)

    async def run(entries: list[cache_pb2.BatchEntry]) -> Sequence[cache_pb2.BatchOutcome]:
        request = cache_pb2.RunBatchRequest(entries=entries).SerializeToString()
        message = await peer.unary("/ssop.v1.CacheService/RunBatch", request, timeout_s=30, metadata=own)
        outcomes = cache_pb2.RunBatchResponse.FromString(message).outcomes
        assert not any(outcome.status or outcome.commit_status for outcome in outcomes)
        return outcomes

    async def admit(number: int, keys: Sequence[bytes]) -> list[cache_pb2.AdmitResponse]:
        requests = [
            cache_pb2.AdmitRequest(
                request_id=f"r{number}-{at}", cache_key=key, reserve_tokens=1_400, lease_ms=5_000, reservation_ms=30_000
            )
            for at, key in enumerate(keys)
        ]
        if len(requests) == 1:
            return [await call("Admit", requests[0], cache_pb2.AdmitResponse)]
        return [
            outcome.admitted
            for outcome in await run([cache_pb2.BatchEntry(principal=principal, admit=one) for one in requests])
        ]

    def settlement(number: int, at: int) -> cache_pb2.SettleRequest:
        request = cache_pb2.SettleRequest(request_id=f"r{number}-{at}")
        request.usage.input_tokens, request.usage.output_tokens = 300, 40
        request.counts.tier = mesh_pb2.TIER_LITE
        return request

    async def miss(number: int) -> None:
        keys = [(number * bench.together + at).to_bytes(32, "big") for at in range(bench.together)]
        admitted = await admit(number, keys)
        await asyncio.sleep(0.0 if bench.callers else 0.6)
        entries = []
        for at, (key, one) in enumerate(zip(keys, admitted, strict=True)):
            commit = cache_pb2.CommitRequest(
                cache_key=key,
                fencing_token=one.fencing_token,
                chunk=ANSWER,
                is_complete=True,
                model="replay",
                is_all=True,
            )
            entries.append(cache_pb2.BatchEntry(principal=principal, settle=settlement(number, at), commit=commit))
        await run(entries)

    async def hit(number: int) -> None:
        stored = bench.together * 1_000
        keys = [(stored + (number * bench.together + at) % 500).to_bytes(32, "big") for at in range(bench.together)]
        assert all(found.answer.chunk == ANSWER for found in await admit(1_000_000 + number, keys))
        settlements = [settlement(1_000_000 + number, at) for at in range(bench.together)]
        if len(settlements) == 1:
            await call("Settle", settlements[0], cache_pb2.SettleResponse)
        else:
            await run([cache_pb2.BatchEntry(principal=principal, settle=one) for one in settlements])

    await wait_ready(miss)
    pids = {"cache": pid, "redis-state": pid_of(state), "redis-cache": pid_of(cache)}
    await bench.measure("miss, store", miss, pids, each=bench.together, servers=(state, cache))
    await bench.measure("hit on the host", hit, pids, each=bench.together, servers=(state, cache))
    await peer.close()


def build_post() -> content_pb2.Prompt:
    """What the opinion application asks of a post."""
    prompt = content_pb2.Prompt()
    for message in build_messages(shipped_prompts()["en"], "Brand 7 order 1f: late again, nobody answers"):
        prompt.messages.add(
            role=content_pb2.Role.Value(f"ROLE_{message['role'].upper()}"),
            parts=[content_pb2.ContentPart(text=message["content"])],
        )
    prompt.output_schema.json_schema = json.dumps(post_schema().document)
    prompt.sampling.max_output_tokens = 400
    return prompt


def record_post(recording: Path, p50_ms: float) -> None:
    """The answer of 40 tokens, 12 fields."""
    write_recording(recording, LoadOptions(p50_ms=p50_ms, p99_ms=2 * p50_ms))


def record_load(recording: Path, wait_ms: float) -> None:
    """The answer of `make bench-mesh`: 12 tokens, 12 frames."""
    recording.write_text(load_requests.write_recording(wait_ms))


async def bench_inference(bench: Bench, stack: ExitStack) -> None:
    """Answers of the replayed model, with its times and without."""
    recording = bench.folder / "recording.jsonl"
    post, load = build_post(), load_requests.Requests(1).build(1).prompt
    for what, record, prompt, linger_ms in (
        ("answer of 600 ms", partial(record_post, recording, 600.0), post, 0),
        ("answer at once", partial(record_post, recording, 0.001), post, 0),
        ("12 tokens at once", partial(record_load, recording, 0.0), load, 0),
        ("12 tokens, 2 ms each", partial(record_load, recording, 2.0), load, 0),
        ("the same, linger 50 ms", partial(record_load, recording, 2.0), load, 50),
    ):
        record()
        model = {"name": "replay", "backend": "replay", "path": str(recording), "tiers": ["lite", "full"]}
        with bench.running("inference", {"models": [{**model, "slots": 1_024}], "linger_ms": linger_ms}) as pid:
            peer, metadata = bench.peer("inference")
            came: Counter[str] = Counter()

            async def generate(
                number: int,
                peer: ConnectedPeer = peer,
                metadata: Any = metadata,
                prompt: content_pb2.Prompt = prompt,
                came: Counter[str] = came,
            ) -> None:
                request = inference_pb2.InferenceServiceGenerateRequest(request_id=f"r{number}", prompt=prompt)
                got: list[bytes] = []
                await peer.stream(
                    "/ssop.v1.InferenceService/Generate",
                    request.SerializeToString(),
                    got.append,
                    timeout_s=30,
                    metadata=metadata,
                )
                came["messages"] += len(got)
                assert Chunk.FromString(got[-1]).frames[-1].end.verdict == VERDICT_OK

            await wait_ready(generate)
            await bench.measure(what, generate, {"inference": pid}, messages=came.total)
            await peer.close()


async def wait_ready(life: Life) -> None:
    """Return when a life succeeds."""
    for _ in range(600):
        try:
            await life(0)
            break
        except Exception:  # noqa: BLE001 - whatever it is, the service has not begun; the last try would raise it
            await asyncio.sleep(0.1)
    else:
        await life(0)


async def bench_rag(bench: Bench, stack: ExitStack) -> None:
    """Questions that were never asked, and one that was."""
    pid = stack.enter_context(bench.running("rag", {"directory": str(bench.folder / "index")}))
    peer, metadata = bench.peer("rag")
    documents = [
        rag_pb2.IndexDocument(document_id=f"b{n}", text=f"Brand {n} sells phones. In May its parcels were late.")
        for n in range(23)
    ]
    upsert = rag_pb2.UpsertDocumentsRequest(collection="brands", documents=documents)

    async def fill(_: int) -> None:
        path = "/ssop.v1.RagService/UpsertDocuments"
        await peer.unary(path, upsert.SerializeToString(), timeout_s=30, metadata=metadata)

    await wait_ready(fill)
    rng = random.Random(1)

    def look_up(is_new: bool) -> Life:
        async def retrieve(number: int) -> None:
            order = f"{rng.getrandbits(40):x}" if is_new else "7"
            request = rag_pb2.RetrieveRequest(
                request_id=f"r{number}", collections=["brands"], top_k=3,
                query=f"Brand {number % 23} order {order}: late again, nobody answers",
            )  # fmt: skip
            path = "/ssop.v1.RagService/Retrieve"
            await peer.unary(path, request.SerializeToString(), timeout_s=30, metadata=metadata)

        return retrieve

    await bench.measure("question that is known", look_up(is_new=False), {"rag": pid})
    bench.rate = min(bench.rate, 40.0)
    await bench.measure("new question, 40/s", look_up(is_new=True), {"rag": pid})
    await peer.close()


BENCHES = {"cache": bench_cache, "inference": bench_inference, "rag": bench_rag}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(BENCHES))
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--callers", type=int, default=0, help="as many in turn, as fast as they are served")
    parser.add_argument("--together", type=int, default=1, help="requests in each call of the cache service, up to 64")
    given = parser.parse_args()
    for part in given.parts:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            uvloop.run(
                BENCHES[part](Bench(Path(folder), given.rate, given.seconds, given.callers, given.together), stack)
            )


if __name__ == "__main__":
    main()
