"""Twelve node processes, some of them harmed, under load through router processes; and what came of it."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from helpers.node_process import NodeOrder
from helpers.node_units import NodeUnit, memory_cgroup, run_units
from helpers.router_fleet import Fleet, Reply, run_fleet
from helpers.scripted_mesh import SECRET
from helpers.streams import question
from ssop.v1.frame_pb2 import FrameKind, Verdict

FAULTS: Final = ("fails-fast", "frozen", "slow", "errs", "grows", "flaps")
NODES: Final = 12
WARM_S: Final = 2.0
"""All nodes are well for so long; then the faults begin."""
LATE_S: Final = 10.0
"""After so much of the faults the share of calls counts."""
_BEHAVIOURS: Final = {"fails-fast": "fails_fast", "slow": "slow", "errs": "errs", "grows": "grows"}


@dataclass
class Result:
    """What came of a run. Calls are generations that clients asked for, tries of nodes that are out not among them.

    `ejected` counts by node how often a router took it out.
    """

    seconds: float = 0.0
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    late_calls: Counter[str] = field(default_factory=Counter)
    ejected: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    has_cgroup: bool = False

    def late_share(self, name: str) -> float:
        """The part of all late calls that a node got."""
        return self.late_calls[name] / max(1, sum(self.late_calls.values()))

    @property
    def healthy_ejected(self) -> int:
        """How often a node that was well was taken out."""
        return sum(times for name, times in self.ejected.items() if name.startswith("healthy"))

    def line(self) -> str:
        """The run, to be printed."""
        ordered = sorted(self.latencies_ms)
        p95, worst = ordered[int(len(ordered) * 0.95)], ordered[-1]
        shares = " ".join(f"{name} {100 * self.late_share(name):.2f} %" for name in FAULTS if self.calls[name])
        return (
            f"{self.requests} requests in {self.seconds:.0f} s, failures {len(self.failures)}, P95 {p95:.0f} ms, "
            f"worst {worst:.0f} ms; healthy ejected {self.healthy_ejected}; ejected {dict(self.ejected)} by "
            f"{dict(self.rules)}; kills {dict(self.kills)}, memory by {'cgroup' if self.has_cgroup else 'SIGKILL'}; "
            f"share after {LATE_S:.0f} s: {shares}"
        )


async def run_twelve(
    folder: Path, faults: Sequence[str], *, seed: int, duration_s: float, rps: float = 50.0, routers: int = 2
) -> Result:
    """Run twelve nodes, one for each of `faults` and the others healthy, for so long from the first fault on."""
    result = Result()
    async with AsyncExitStack() as stack:
        cgroup = stack.enter_context(memory_cgroup(f"ssop-{folder.name[:24]}")) if "grows" in faults else ""
        result.has_cgroup = bool(cgroup)
        names = [*faults, *(f"healthy-{number}" for number in range(NODES - len(faults)))]
        orders = [_order(name, folder, cgroup, seed) for name in names]
        units = await stack.enter_async_context(run_units(orders, folder))
        fleet = await stack.enter_async_context(
            run_fleet(folder, {}, routers=routers, addresses=[order.address for order in orders])
        )
        await _all_serve(fleet)
        await _load(fleet, units, faults, result, random.Random(seed), duration_s, rps)
        for name, unit in units.items():
            result.kills[name] = unit.kills
        _read_logs(fleet, {order.address: order.name for order in orders}, result)
    result.kills = +result.kills
    return result


def _order(name: str, folder: Path, cgroup: str, seed: int) -> NodeOrder:
    behaviour = _BEHAVIOURS.get(name, "healthy")
    return NodeOrder(
        name=name,
        address=f"unix:{folder}/{name}.sock",
        calls=f"{folder}/{name}.calls",
        secret=SECRET.hex(),
        behaviour=behaviour,
        cgroup=cgroup if behaviour == "grows" else "",
        seed=seed,
    )


async def _all_serve(fleet: Fleet) -> None:
    """Every router has heard of every node."""
    deadline_s = time.monotonic() + 60
    for router in fleet.routers:
        while sum(line["message"] == "a node says its status" for line in router.log) < NODES:
            assert time.monotonic() < deadline_s, "not all nodes serve"
            await asyncio.sleep(0.1)


async def _load(
    fleet: Fleet,
    units: dict[str, NodeUnit],
    faults: Sequence[str],
    result: Result,
    rng: random.Random,
    duration_s: float,
    rps: float,
) -> None:
    begun_s = time.monotonic()
    running: set[asyncio.Task[None]] = set()
    harm: list[asyncio.Task[None]] = []
    early: Counter[str] = Counter()
    is_late = False
    next_s = begun_s
    while (now_s := time.monotonic()) < begun_s + WARM_S + duration_s:
        if not harm and now_s >= begun_s + WARM_S:
            harm = [asyncio.ensure_future(_harm(units, faults))]
        if not is_late and now_s >= begun_s + WARM_S + LATE_S:
            is_late = True
            early = Counter({name: unit.calls for name, unit in units.items()})
        if now_s < next_s:
            await asyncio.sleep(next_s - now_s)
            continue
        next_s += rng.expovariate(rps)
        task = asyncio.ensure_future(_ask(fleet, result))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    for task in harm:
        task.cancel()
    await asyncio.gather(*harm, return_exceptions=True)
    result.seconds = time.monotonic() - begun_s
    result.calls = Counter({name: unit.calls for name, unit in units.items()})
    result.late_calls = result.calls - early


async def _harm(units: dict[str, NodeUnit], faults: Sequence[str]) -> None:
    if "frozen" in faults:
        units["frozen"].freeze()
    if "flaps" in faults:
        await units["flaps"].flap()


async def _ask(fleet: Fleet, result: Result) -> None:
    result.requests += 1
    router = fleet.routers[result.requests % len(fleet.routers)]
    started_s = time.monotonic()
    reply = await router.ask(question(f"How is the mood of {result.requests}?"))
    result.latencies_ms.append((time.monotonic() - started_s) * 1_000)
    if fault := _fault_of(reply):
        result.failures.append(f"after {result.latencies_ms[-1]:.0f} ms: {fault}")


def _fault_of(reply: Reply) -> str:
    """Why a reply is not what its caller wanted; empty if it is."""
    if reply.error is not None:
        return f"{reply.error.reason_name}: {reply.error.message}"
    ends = [frame.end for frame in reply.frames if frame.kind == FrameKind.FRAME_KIND_END]
    if len(ends) != 1 or ends[0].verdict != Verdict.VERDICT_OK:
        return f"{len(ends)} ends"
    levels = [frame.status.degraded_level for frame in reply.frames if frame.kind == FrameKind.FRAME_KIND_STATUS]
    return f"degraded {levels}" if any(levels) else ""


def _read_logs(fleet: Fleet, names: dict[str, Any], result: Result) -> None:
    for router in fleet.routers:
        for line in router.log:
            if line["message"] == "a node is out of rotation":
                result.ejected[names[line["address"]]] += 1
                result.rules[line["rule"]] += 1
