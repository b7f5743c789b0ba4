"""What the mesh adds to a model server, beside LiteLLM's proxy and the Rust router of the vLLM project, in one run.

`make bench-proxies`; the peers are installed into `BENCH_PEERS` (or a temporary folder). BENCH_ROUNDS: rounds of 25
requests and connection, 8 unless given. All take turns within a round, so that the load of the machine meets all.
"""

import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc.aio

from helpers import null_upstream, peers
from helpers.live_mesh import LiveMesh, run_mesh
from helpers.llama_server import SLOTS, llama_server
from ssop.v1 import router_pb2, router_pb2_grpc
from ssop.v1.content_pb2 import ContentPart, Message, Prompt, Role
from ssop_cli.embedded import free_port

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "8"))
REQUESTS: Final = 25
CONCURRENCIES: Final = (1, 8)
TEXT: Final = "Say something about the sea."
TIMEOUT_S: Final = 120
_CONTENT: Final = re.compile(rb'"content": ?"[^"]')
_BODY: Final = (
    '{{"model": "{model}", "messages": [{{"role": "user", "content": "{text}"}}], "max_tokens": {tokens},'
    ' "temperature": 0, "stream": {stream}}}'
)

Times = tuple[float, float]
"""Seconds to the first event with text, and to the end."""


@dataclass
class Target:
    """Something that answers. `connect` gives a function that asks once, on a connection of its own."""

    name: str
    connect: Callable[[bool, int], Any]
    times: dict[tuple[bool, int], list[Times]] = field(default_factory=dict)
    failures: int = 0


def http_target(name: str, port: int, *, key: str = "", model: str = "m", headers: str = "") -> Target:
    """A server with OpenAI's chat API on a port."""

    async def connect(is_stream: bool, tokens: int) -> AsyncIterator[Callable[[], Awaitable[Times]]]:
        connection = await asyncio.open_connection("127.0.0.1", port)
        body = _BODY.format(model=model, text=TEXT, tokens=tokens, stream=str(is_stream).lower()).encode()
        authorization = f"authorization: Bearer {key}\r\n" if key else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n{authorization}{headers}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()

        async def ask(*, is_again: bool = False) -> Times:
            nonlocal connection
            reader, writer = connection
            began_s = time.perf_counter()
            writer.write(head + body)
            try:
                first_s = await _read_answer(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                if is_again:
                    raise
                # Some servers close a kept connection after so many requests; whoever asks next opens another one.
                writer.close()
                connection = await asyncio.open_connection("127.0.0.1", port)
                return await ask(is_again=True)
            return first_s - began_s, time.perf_counter() - began_s

        try:
            yield ask
        finally:
            connection[1].close()

    return Target(name, connect)


async def _read_answer(reader: asyncio.StreamReader) -> float:
    """Read one answer; when its first text came. Raises RuntimeError for one that is none."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    first_s = 0.0
    if b"transfer-encoding: chunked" in head:
        parts: list[bytes] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
            if not first_s and _CONTENT.search(parts[-1]):
                first_s = time.perf_counter()
        await reader.readexactly(2)
        body = b"".join(parts)
    else:
        body = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        first_s = time.perf_counter()
    if not head.startswith(b"http/1.1 200") or not _CONTENT.search(body):
        raise RuntimeError(f"{head[:40]!r} {body[:200]!r}")
    return first_s


def grpc_target(name: str, mesh: LiveMesh) -> Target:
    """The router itself, over gRPC; an answer that is not streamed is the same call, read to its end."""

    async def connect(_: bool, tokens: int) -> AsyncIterator[Callable[[], Awaitable[Times]]]:
        prompt = Prompt(messages=[Message(role=Role.ROLE_USER, parts=[ContentPart(text=TEXT)])])
        prompt.sampling.max_output_tokens = tokens
        request = router_pb2.GenerateRequest(prompt=prompt, policy="no_cache")
        metadata = (("authorization", f"Bearer {mesh.key}"),)
        # A channel of its own, as each HTTP client has a connection of its own.
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(mesh.target, options=options) as channel:
            stub = router_pb2_grpc.RouterServiceStub(channel)

            async def ask() -> Times:
                began_s, first_s = time.perf_counter(), 0.0
                async for chunk in stub.Generate(request, timeout=TIMEOUT_S, metadata=metadata):
                    if not first_s and any(frame.kind in {2, 3} for frame in chunk.frames):
                        first_s = time.perf_counter()
                return first_s - began_s, time.perf_counter() - began_s

            yield ask

    return Target(name, connect)


async def load(target: Target, *, is_stream: bool, concurrency: int, requests: int, tokens: int) -> None:
    """Ask on so many connections at the same time, each so often."""

    async def work() -> list[Times]:
        found: list[Times] = []
        async for ask in target.connect(is_stream, tokens):
            for _ in range(requests):
                async with asyncio.timeout(TIMEOUT_S):
                    found.append(await ask())
        return found

    results = await asyncio.gather(*(work() for _ in range(concurrency)), return_exceptions=True)
    times = target.times.setdefault((is_stream, concurrency), [])
    for result in results:
        if isinstance(result, BaseException):
            target.failures += 1
            print(f"{target.name}: {result!r}", file=sys.stderr)
        else:
            times += result


async def compare(title: str, targets: list[Target], *, rounds: int, requests: int, tokens: int) -> None:
    """Measure all targets in turns; print medians, what is added, and ratios."""
    for target in targets:
        await load(target, is_stream=True, concurrency=1, requests=min(5, requests), tokens=tokens)
        target.times.clear()
    for _ in range(rounds):
        for is_stream in (False, True):
            for concurrency in CONCURRENCIES:
                for target in targets:
                    await load(target, is_stream=is_stream, concurrency=concurrency, requests=requests, tokens=tokens)
    print(f"\n{title}: medians in ms, what is added to the direct way, and the ratio to it")
    for is_stream in (False, True):
        for concurrency in CONCURRENCIES:
            print(f"{'streamed' if is_stream else 'whole'}, {concurrency} at a time")
            for target in targets:
                _show(target, targets[0], (is_stream, concurrency))


def _show(target: Target, direct: Target, case: tuple[bool, int]) -> None:
    if not target.times.get(case) or not direct.times.get(case):
        print(f"  {target.name:28} no answer")
        return
    texts = []
    for index, what in enumerate(("first", "end")):
        median_ms, direct_ms = (
            1000 * statistics.median(times[index] for times in found.times[case]) for found in (target, direct)
        )
        if index or case[0]:
            texts.append(f"{what} {median_ms:8.2f}  {median_ms - direct_ms:+8.2f}  {median_ms / direct_ms:6.1f}x")
    print(f"  {target.name:28} {'   '.join(texts)}   n={len(target.times[case])} failed={target.failures}")


@contextmanager
def null_server() -> Iterator[int]:
    """A server that costs next to nothing; its port."""
    port = free_port()
    command = [sys.executable, str(null_upstream.__file__), str(port)]
    page = f"http://127.0.0.1:{port}/v1/models"
    with tempfile.TemporaryDirectory() as folder, peers.running(command, page, {}, Path(folder) / "null.log"):
        yield port


async def measure(title: str, port: int, *, rounds: int, requests: int, tokens: int, is_llama: bool) -> None:
    """All that stands in front of one server."""
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets = [http_target("direct", port)]
        model: dict[str, Any] = {"name": "m", "backend": "openai", "url": url, "tiers": ["lite", "full"], "slots": 64}
        model |= {"slots": SLOTS} if is_llama else {"dialect": "json-object", "context_tokens": 4096}
        # On a busy machine the real model takes its time.
        changes: dict[str, dict[str, Any]] = {
            "inference": {"models": [model], "max_waiting": 256},
            "router": {"first_field_timeout_ms": 1000 * TIMEOUT_S},
        }
        mesh_folder = folder / "mesh"
        mesh_folder.mkdir()
        mesh = stack.enter_context(run_mesh(mesh_folder, changes, has_http=True))
        edge_port = int(mesh.url.rpartition(":")[2])
        no_cache = "x-router-policy: no_cache\r\n"
        targets.append(grpc_target("ssop router (gRPC)", mesh))
        targets.append(http_target("ssop edge and router", edge_port, key=mesh.key, model="auto", headers=no_cache))
        try:
            peer_port = free_port()
            stack.enter_context(peers.vllm_router(url, peer_port, free_port(), folder))
            targets.append(http_target("vllm-router 0.1.17", peer_port))
        except peers.PeerError as error:
            print(f"without vllm-router: {error}")
        try:
            peer_port = free_port()
            stack.enter_context(peers.litellm(url, peer_port, folder))
            targets.append(http_target("litellm 1.108.7", peer_port, key=peers.LITELLM_KEY))
        except peers.PeerError as error:
            print(f"without litellm: {error}")
        await compare(title, targets, rounds=rounds, requests=requests, tokens=tokens)


async def main() -> None:
    """The server that costs nothing, where what is added is all there is; then the real one."""
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with null_server() as port:
        await measure(
            "null server", port, rounds=ROUNDS, requests=REQUESTS, tokens=null_upstream.PIECES, is_llama=False
        )
    with llama_server() as server:
        await measure("llama-server", server.port, rounds=max(1, ROUNDS // 4), requests=3, tokens=8, is_llama=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    # So that whoever stops it stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        asyncio.run(main())
    except subprocess.SubprocessError as error:
        sys.exit(f"a process does not run: {error}")
