"""The native transport in long use: calls, cancels and reconnects by the thousand, and what they leave behind."""

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from helpers.memory_wire import SERVICE
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector, server_starter

WIDTH: Final = 32
SAMPLES: Final = 20
_WARM_SHARE: Final = 0.2
"""Of a run, at its beginning, in which pools and caches fill."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What `count` rounds left behind, without the first fifth: slopes of the least squares, per 100,000 rounds."""

    name: str
    count: int
    objects: float
    rss_kib: float
    last_rss_kib: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.count:,} rounds, per 100,000: {self.objects:+,.0f} objects, {self.rss_kib:+,.0f} KiB; "
            f"{self.last_rss_kib / 1024:.0f} MiB at the end"
        )


def _rss_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _slope(points: list[tuple[int, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


async def measure(name: str, count: int, step: Callable[[int], Awaitable[None]]) -> Growth:
    """Run `step` for rounds of a share of `count` each, and look at the process after each."""
    each = max(1, count // SAMPLES)
    points: list[tuple[int, int, int]] = []
    for number in range(1, SAMPLES + 1):
        await step(each)
        gc.collect()
        points.append((number * each, len(gc.get_objects()), _rss_kib()))
    warm = points[int(SAMPLES * _WARM_SHARE) :]
    objects = _slope([(done, found) for done, found, _ in warm])
    rss = _slope([(done, found) for done, _, found in warm])
    return Growth(name, each * SAMPLES, objects * 100_000, rss * 100_000, points[-1][2])


@asynccontextmanager
async def soaked(folder: Path) -> AsyncIterator[tuple[Any, str]]:
    """A server in this process, and its address."""
    address = f"unix:{folder}/soak"
    server: Any = await server_starter("native", "test")(
        [SERVICE], [address], authenticate=inner_authenticate(bytes(32))
    )
    try:
        yield server, address
        assert not server._tasks
    finally:
        await server.stop(0)


async def soak_calls(folder: Path, count: int) -> Growth:
    """Calls, one in 64 a stream of 200 messages at a slow reader."""
    async with soaked(folder) as (_, address):
        peer = connector("native")(address)

        async def call(rounds: int) -> None:
            for number in range(rounds):
                if number % 64:
                    await peer.unary("/test.T/Echo", b"x" * 300, timeout_s=300)
                else:
                    await peer.stream("/test.T/Count", b"y" * 20, lambda _: None, timeout_s=300)

        async def step(rounds: int) -> None:
            await asyncio.gather(*(call(max(1, rounds // WIDTH)) for _ in range(WIDTH)))

        growth = await measure("calls", count, step)
        await peer.close()
    return growth


async def soak_cancels(folder: Path, count: int, seed: int) -> Growth:
    """Calls that are given up at any moment, before and after they reach the server."""
    rng = random.Random(seed)
    async with soaked(folder) as (server, address):
        peer = connector("native")(address)

        async def cancel(rounds: int) -> None:
            for _ in range(rounds):
                method = rng.choice(("/test.T/Hang", "/test.T/Count", "/test.T/Mirror"))
                call = asyncio.ensure_future(peer.stream(method, b"z" * 500, lambda _: None, timeout_s=300))
                for _ in range(rng.randrange(6)):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

        async def step(rounds: int) -> None:
            await asyncio.gather(*(cancel(max(1, rounds // WIDTH)) for _ in range(WIDTH)))
            while server._tasks:
                await asyncio.sleep(0.001)

        growth = await measure("cancels", count, step)
        await peer.close()
    return growth


async def soak_reconnects(folder: Path, count: int, seed: int) -> Growth:
    """Connections made for one call each, closed by the client, by the server, or lost with a call on them."""
    rng = random.Random(seed)
    async with soaked(folder) as (server, address):

        async def step(rounds: int) -> None:
            for _ in range(rounds):
                peer = connector("native")(address)
                await peer.unary("/test.T/Echo", b"x", timeout_s=300)
                kind = rng.randrange(4)
                if kind:
                    call = asyncio.ensure_future(peer.stream("/test.T/Hang", b"", lambda _: None, timeout_s=300))
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)
                    for connection in tuple(server._connections):
                        if kind == 1:
                            connection.abort()
                        elif kind == 2:
                            connection.close()
                    for _ in range(rng.randrange(8)):
                        await asyncio.sleep(0)
                    # One of which nothing had been sent is on its way again, to a server that never answers it.
                    call.cancel()
                    found = await asyncio.gather(call, return_exceptions=True)
                    assert isinstance(found[0], MeshError | asyncio.CancelledError)
                await peer.close()
            while server._connections:
                await asyncio.sleep(0.001)

        return await measure("reconnects", count, step)
