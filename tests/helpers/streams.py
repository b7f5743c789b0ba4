"""Crowds of callers that leave, and of callers that do not read, on a router process."""

import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import grpc.aio

from helpers.router_fleet import FleetRouter
from helpers.scripted_mesh import ask
from helpers.scripted_node import Script, encode, node_status_chunk
from ssop_chassis.call import Call

LONG_BYTES: Final = 1_000_000
_PER_CONNECTION: Final = 20


def question(text: str = "How is the mood?") -> Any:
    """A request that no cache answers."""
    return ask(text, policy="full,no_cache")


def by_text() -> Script:
    """A script whose answer is long where the question begins with `Long`; else short, over some 5 ms."""
    short = encode(json.dumps({"mood": "fine", "score": 3}))
    long = encode(json.dumps({"mood": "x" * LONG_BYTES, "score": 1}), buffer_bytes=8_192)

    async def script(call: Call, request: Any) -> None:
        await call.write(node_status_chunk())
        if request.prompt.messages[0].parts[0].text.startswith("Long"):
            for chunk in long:
                await call.write(chunk)
            return
        for chunk in short:
            await call.write(chunk)
            await asyncio.sleep(0.001)

    return script


async def cancel_streams(router: FleetRouter, count: int, rng: random.Random, *, at_once: int = 32) -> int:
    """Open so many streams and leave each at a random point: at once, later, or after some chunks. Those left open."""
    free = asyncio.Semaphore(at_once)
    cut = 0

    async def one(chunks: int, after_s: float) -> None:
        nonlocal cut
        async with free:
            call = router.open(question())
            for _ in range(chunks):
                if await call.read() is grpc.aio.EOF:
                    return
            await asyncio.sleep(after_s)
            cut += call.cancel()

    for first in range(0, count, 1_000):
        size = min(1_000, count - first)
        await asyncio.gather(*(one(rng.choice([0, 0, 1, 2]), rng.choice([0, 0.002, 0.01])) for _ in range(size)))
    return cut


@asynccontextmanager
async def stalled_readers(router: FleetRouter, count: int) -> AsyncIterator[list[Any]]:
    """Callers of long answers that read one chunk and then nothing, on connections of their own."""
    async with AsyncExitStack() as stack:
        calls = []
        for number in range(count):
            if number % _PER_CONNECTION == 0:
                channel = router.connect()
                stack.push_async_callback(channel.close)
            calls.append(router.open(question(f"Long {number}"), 300, channel))
        for call in calls:
            stack.callback(call.cancel)
        await asyncio.gather(*(call.read() for call in calls))
        yield calls


async def measure_p95_ms(router: FleetRouter, count: int) -> float:
    """The time of a short answer, one at a time."""
    times_ms = []
    for _ in range(count):
        started_s = time.perf_counter()
        reply = await router.ask(question())
        assert reply.error is None
        times_ms.append((time.perf_counter() - started_s) * 1_000)
    return statistics.quantiles(times_ms, n=20)[-1]
