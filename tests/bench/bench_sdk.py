"""Throughput of the SDK against a scripted router in a process of its own, for several batch sizes.

    python tests/bench/bench_sdk.py [--requests 400] [--think-ms 2]

The router waits `--think-ms` before each answer, as a model does; 0 shows what client and transport cost. An answer
is a small document in a chunk for each token of 16 bytes, with decision, status and accounting around it.
Router and client share the machine and both run on grpc.aio or gRPC's threads, so the figures are those of the pair.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.answers import PERSON, PERSON_SCHEMA, delivery, document_chunks
from helpers.scripted_router import ScriptedRouter, serve
from ssop_sdk import AsyncSsopClient, SsopClient

BATCH_SIZES = (1, 4, 16)
ROUNDS = 3


def run_router(address: str, think_ms: float, ready: Any) -> None:
    """Serve until killed."""
    chunks = delivery(document_chunks(PERSON, token_bytes=16))

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        if think_ms:
            await asyncio.sleep(think_ms / 1000)
        for chunk in chunks:
            yield chunk

    async def main() -> None:
        async with serve(ScriptedRouter(script), address):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(main())


async def run_async(address: str, requests: int, batch_size: int) -> float:
    """Answers a second of the async client."""
    async with AsyncSsopClient("bench", address, output_schema=PERSON_SCHEMA) as client:
        await client.generate("warm").result()
        began = time.perf_counter()
        count = 0
        async for _ in client.generate_many(["x"] * requests, batch_size=batch_size):
            count += 1
        return count / (time.perf_counter() - began)


def run_sync(address: str, requests: int, batch_size: int) -> float:
    """Answers a second of the sync client."""
    with SsopClient("bench", address, output_schema=PERSON_SCHEMA) as client:
        client.generate("warm").result()
        began = time.perf_counter()
        count = sum(1 for _ in client.generate_many(["x"] * requests, batch_size=batch_size))
        return count / (time.perf_counter() - began)


def measure(run: Callable[[int], float], name: str, think_ms: float) -> list[dict[str, Any]]:
    """One row a batch size: median and spread of the rounds."""
    rows = []
    for batch_size in BATCH_SIZES:
        rates = [run(batch_size) for _ in range(ROUNDS)]
        row = {
            "client": name,
            "think_ms": think_ms,
            "batch_size": batch_size,
            "answers_per_s": round(statistics.median(rates), 1),
            "spread": [round(min(rates), 1), round(max(rates), 1)],
        }
        print(f"{name:5} batch_size={batch_size:<3} {row['answers_per_s']:>8} answers/s  {row['spread']}")
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print; the last line is JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--think-ms", type=float, default=2.0)
    options = parser.parse_args()
    # Spawned, not forked: gRPC's threads do not live on in a forked child.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="sdk") as folder:
        address = f"unix:{folder}/r.sock"
        ready = context.Event()
        router = context.Process(target=run_router, args=(address, options.think_ms, ready), daemon=True)
        router.start()
        try:
            if not ready.wait(30):
                raise RuntimeError("the router did not start")
            rows = measure(
                lambda size: asyncio.run(run_async(address, options.requests, size)), "async", options.think_ms
            )
            rows += measure(lambda size: run_sync(address, options.requests, size), "sync", options.think_ms)
        finally:
            router.kill()
            router.join()
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    print(json.dumps({"requests": options.requests, "rounds": ROUNDS, "machine": machine, "rows": rows}))


if __name__ == "__main__":
    main()
