"""What a flood of streams that are opened and reset costs other clients of the front, and the front in memory.

`make bench-front-flood`: answers of a router behind the shipped nginx.conf, without a flood and under 10,000 HEADERS
and RST_STREAM a second from one connection, in turns.
"""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from helpers.h2_flood import Flood, flood
from helpers.nginx import Front, run_front
from helpers.router_process import run_process
from helpers.scripted_node import SCHEMA
from ssop_cli.embedded import free_port
from ssop_sdk import AsyncSsopClient
from ssop_sdk.target import Tls

ROUNDS: Final = int(os.environ.get("SSOP_TEST_ROUNDS", "6"))
ANSWERS: Final = int(os.environ.get("SSOP_TEST_ANSWERS", "200"))
FLOOD_PER_S: Final = 10_000


async def ask(client: AsyncSsopClient) -> list[float]:
    """Milliseconds of each answer, one after the other, 20 a second."""
    took_ms = []
    for _ in range(ANSWERS):
        begun_s = time.perf_counter()
        await client.generate("How is it?", output_schema=SCHEMA).result()
        took_ms.append((time.perf_counter() - begun_s) * 1000)
        await asyncio.sleep(0.05)
    return took_ms


def memory_mib(front: Front) -> float:
    """Resident memory of nginx' workers."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in front.workers())
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(folder: Path) -> None:
    """Print medians and P95, and memory."""
    address = f"127.0.0.1:{free_port()}"
    listen = [f"unix:{folder}/router.sock", address]
    async with run_process(folder, listen=listen) as router, run_front(folder, routers=[address]) as front:
        tls = Tls(root_certificates=front.ca, server_name="localhost")
        async with AsyncSsopClient(router.key, front.url, tls=tls, timeout_s=60) as client:
            await ask(client)
            quiet, flooded, count = [], [], Flood()
            before_mib = most_mib = memory_mib(front)
            sent_s = 0.0
            for _ in range(ROUNDS):
                quiet += await ask(client)
                path = "/ssop.v1.RouterService/Generate"
                running = asyncio.create_task(
                    flood(front.port, str(front.ca), "x", count, per_s=FLOOD_PER_S, path=path)
                )
                begun_s = time.perf_counter()
                flooded += await ask(client)
                sent_s += time.perf_counter() - begun_s
                most_mib = max(most_mib, memory_mib(front))
                running.cancel()
                await asyncio.sleep(1)
    quiet_p95, flooded_p95 = (statistics.quantiles(values, n=20)[-1] for values in (quiet, flooded))
    print(f"streams opened and reset a second: {count.streams / sent_s:.0f}, over {count.connections} connections")
    print(f"answers: {len(quiet)} quiet, {len(flooded)} under the flood, none failed")
    print(f"median ms: quiet {statistics.median(quiet):.1f}, flood {statistics.median(flooded):.1f}")
    print(f"P95 ms: quiet {quiet_p95:.1f}, flood {flooded_p95:.1f}, ratio {flooded_p95 / quiet_p95:.2f} (bar 2)")
    print(f"memory of the workers, MiB: {before_mib:.1f} before, {most_mib:.1f} at most (bar +100)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="flood") as name:
        asyncio.run(measure(Path(name)))
