"""How fast nodes join and leave: `python tests/bench/bench_discovery.py [--rounds N]`.

Real processes: a router, a cache service on Redis, and nodes with recorded answers that announce themselves; a node of
the settings is a stand-in. Seconds, with the defaults (leases of 5 s, read twice a second): from a node that has been
announced to its first request, from SIGTERM and kill -9 until it is no longer listed; requests that failed meanwhile.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.announcing_nodes import AnnouncingNodes, mesh_status
from helpers.redis_server import redis_pair
from helpers.router_fleet import FleetRouter, ServiceProcess, run_fleet
from helpers.scripted_mesh import ask
from helpers.scripted_node import ScriptedNode, answering
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import FrameKind

_LIMIT_S = 60.0
_LOOK_S = 0.01


class Client:
    """Asks without a pause; knows when a node served last, and what failed."""

    def __init__(self, router: FleetRouter) -> None:
        self._router = router
        self.served: dict[str, float] = {}
        """When each node first served, seconds since the epoch."""
        self.requests = 0
        self.failures = 0
        self.is_over = False

    async def run(self) -> None:
        """Ask until told to stop."""
        while not self.is_over:
            reply = await self._router.ask(ask(f"{self.requests}", policy="full,no_cache"), timeout_s=60)
            self.requests += 1
            self.failures += reply.error is not None
            for frame in reply.frames:
                if frame.kind == FrameKind.FRAME_KIND_DECISION:
                    self.served.setdefault(frame.decision.node, time.time())


def announced_at_s(node: ServiceProcess) -> float:
    """When a node said that it is announced, seconds since the epoch."""
    line = next(line for line in node.log if line["message"] == "the node is announced")
    return datetime.fromisoformat(line["time"]).timestamp()


async def _until(started_s: float, holds: Any) -> float:
    while not await holds():
        if time.perf_counter() - started_s > _LIMIT_S:
            raise TimeoutError
        await asyncio.sleep(_LOOK_S)
    return time.perf_counter() - started_s


async def main(rounds: int) -> dict[str, Any]:
    """Medians over the rounds."""
    joins: list[float] = []
    leaves: dict[str, list[float]] = {"SIGTERM": [], "SIGKILL": []}
    with tempfile.TemporaryDirectory(prefix="ssop-") as name, redis_pair() as servers:
        folder = Path(name)
        fixed = {"fixed": ScriptedNode("fixed", [mesh_pb2.TIER_FULL], answering())}
        table = {"has_leases": True}
        async with (
            run_fleet(folder, fixed, routers=1, servers=servers, discovery=table) as fleet,
            AsyncExitStack() as stack,
        ):
            router, nodes = fleet.routers[0], AnnouncingNodes(folder, stack)
            client = Client(router)
            asking = [asyncio.ensure_future(client.run()) for _ in range(4)]
            for number in range(rounds):
                for kind, times in leaves.items():
                    own = f"n{number}-{kind.lower()}"
                    node = await nodes.start(own)

                    async def is_served(own: str = own) -> bool:
                        return own in client.served

                    await _until(time.perf_counter(), is_served)
                    joins.append(max(0.0, client.served[own] - announced_at_s(node)))

                    async def is_gone(own: str = own) -> bool:
                        return all(view.status.node != own for view in (await mesh_status(router)).nodes)

                    started_s = time.perf_counter()
                    os.kill(node._process.pid, signal.Signals[kind])
                    times.append(await _until(started_s, is_gone))
            client.is_over = True
            await asyncio.gather(*asking)
    return {
        "join_s": round(statistics.median(joins), 2),
        "join_s_max": round(max(joins), 2),
        "leave_s": {kind: round(statistics.median(times), 2) for kind, times in leaves.items()},
        "requests": client.requests,
        "failed": client.failures,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    found = asyncio.run(main(parser.parse_args().rounds))
    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), **found}))
