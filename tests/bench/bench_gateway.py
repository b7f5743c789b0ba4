"""What the HTTP edge adds to an answer: time to the first field and to the end, over gRPC and over HTTP.

`make bench-gateway`. A scripted router answers at once, in this process; the edge is a process of its own.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.live_mesh import READY_TIMEOUT_S
from helpers.scripted_router import ScriptedRouter, as_script, serve
from ssop.v1 import router_pb2, router_pb2_grpc
from ssop.v1.content_pb2 import ContentPart, Message, OutputSchema, Prompt, Role
from ssop_cli.embedded import free_port

COUNT = 400
WARM_UP = 40
KEY = "ssop_bench_key"
FIRST, LAST = b"FRAME_KIND_VALUE", b"0\r\n\r\n"


async def wait_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Until the edge takes connections. Raises AssertionError where it has ended, or takes too long."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert process.poll() is None, f"the edge ended with status {process.returncode}"
            assert time.monotonic() < deadline_s, "the edge does not listen"
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def time_grpc(address: str) -> list[tuple[float, float]]:
    """(first field, end) of each answer in seconds, straight from the router."""
    prompt = Prompt(messages=[Message(role=Role.ROLE_USER, parts=[ContentPart(text="Who?")])])
    prompt.output_schema.CopyFrom(OutputSchema(json_schema=json.dumps(PERSON_SCHEMA)))
    times: list[tuple[float, float]] = []
    async with grpc.aio.insecure_channel(address) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        for _ in range(COUNT + WARM_UP):
            began_s, first_s = time.perf_counter(), 0.0
            async for chunk in stub.Generate(router_pb2.GenerateRequest(prompt=prompt), timeout=10):
                if not first_s and any(frame.kind == 2 for frame in chunk.frames):
                    first_s = time.perf_counter()
            times.append((first_s - began_s, time.perf_counter() - began_s))
    return times[WARM_UP:]


async def time_http(port: int, accept: str) -> list[tuple[float, float]]:
    """The same through the edge, on one connection."""
    body = json.dumps({"prompt": "Who?", "output_schema": PERSON_SCHEMA}).encode()
    head = (
        f"POST /v1/generate HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {KEY}\r\naccept: {accept}\r\n"
        f"content-type: application/x-ssop+json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times: list[tuple[float, float]] = []
    for _ in range(COUNT + WARM_UP):
        began_s = time.perf_counter()
        writer.write(head + body)
        await reader.readuntil(FIRST)
        first_s = time.perf_counter()
        await reader.readuntil(LAST)
        times.append((first_s - began_s, time.perf_counter() - began_s))
    writer.close()
    return times[WARM_UP:]


def show(name: str, times: list[tuple[float, float]]) -> None:
    """A line of medians and 95th percentiles."""
    columns = [sorted(1000 * value for value in column) for column in zip(*times, strict=True)]
    texts = [f"{statistics.median(c):7.2f} {c[int(len(c) * 0.95)]:7.2f}" for c in columns]
    print(f"{name:24} first field {texts[0]}   end {texts[1]}   (ms: median, 95 %)")


async def main() -> None:
    """Run all forms, one after the other, twice; the second round counts."""
    router = ScriptedRouter(as_script(delivery(document_chunks(PERSON))))
    with tempfile.TemporaryDirectory() as folder:
        address, port = f"unix:{folder}/r.sock", free_port()
        config = Path(folder) / "ssop.toml"
        config.write_text(
            f'[mesh]\nsecret_file = "unused"\n[gateway]\nlisten = ["127.0.0.1:{port}"]\nrouter_address = "{address}"\n'
        )
        async with serve(router, address):
            process = subprocess.Popen([sys.executable, "-m", "ssop_gateway.main", "--config", str(config)])
            try:
                await wait_listening(process, port)
                for is_counted in (False, True):
                    rounds = {
                        "gRPC": await time_grpc(address),
                        "HTTP, NDJSON": await time_http(port, "application/x-ndjson"),
                        "HTTP, SSE": await time_http(port, "text/event-stream"),
                    }
                    if is_counted:
                        for name, times in rounds.items():
                            show(name, times)
            finally:
                process.terminate()
                await asyncio.to_thread(process.wait, 20)


if __name__ == "__main__":
    asyncio.run(main())
