"""What hostile clients of the front cost others, and the front in memory: rapid resets, and readers that don't read.

`make bench-front-flood`: answers of a router behind the shipped nginx.conf, one after the other, 20 a second; in turns
without hostile clients, under 10,000 HEADERS and RST_STREAM a second from one connection, and beside 1,000 streams that
nobody reads. The hostile ones are another process from another address; first and last round are without them, so that
what the machine does by itself is seen. BENCH_ROUNDS and BENCH_ANSWERS give other numbers.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from helpers.hostile_clients import Attack, hostile_clients
from helpers.machine import read_steal_s
from helpers.nginx import Front, run_front
from helpers.router_process import run_process
from helpers.scripted_node import SCHEMA
from ssop_cli.embedded import free_port
from ssop_sdk import AsyncSsopClient
from ssop_sdk.target import Tls

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "4"))
ANSWERS: Final = int(os.environ.get("BENCH_ANSWERS", "200"))
FLOOD_PER_S: Final = 10_000
UNREAD: Final = 1_000
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Phase:
    """What answers took in milliseconds, the workers' processor time, and steal."""

    name: str
    took_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    steal_s: float = 0.0

    @property
    def p95_ms(self) -> float:
        """Of all answers."""
        return statistics.quantiles(self.took_ms, n=20)[-1]

    def line(self, quiet: "Phase") -> str:
        """To be printed; `quiet` is what it is compared with."""
        return (
            f"{self.name:10} {len(self.took_ms)} answers, median {statistics.median(self.took_ms):.1f} ms,"
            f" P95 {self.p95_ms:.1f} ms, ratio {self.p95_ms / quiet.p95_ms:.2f} (bar 2);"
            f" nginx {100 * self.cpu_s / self.seconds:.0f} % of a core, steal {100 * self.steal_s / self.seconds:.1f} %"
        )


def memory_mib(front: Front) -> float:
    """Resident memory of nginx' workers."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in front.workers())
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(front: Front) -> float:
    """Processor time of nginx' workers."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in front.workers()]
    return sum(int(words[11]) + int(words[12]) for words in fields) / _TICK


async def ask(client: AsyncSsopClient, front: Front, phase: Phase) -> None:
    """Answers one after the other, 20 a second."""
    begun_s, cpu, steal = time.perf_counter(), cpu_s(front), read_steal_s()
    for _ in range(ANSWERS):
        asked_s = time.perf_counter()
        await client.generate("How is it?", output_schema=SCHEMA).result()
        phase.took_ms.append((time.perf_counter() - asked_s) * 1000)
        await asyncio.sleep(0.05)
    phase.seconds += time.perf_counter() - begun_s
    phase.cpu_s += cpu_s(front) - cpu
    phase.steal_s += read_steal_s() - steal


async def measure(folder: Path) -> None:
    """Print medians, P95 and memory."""
    address = f"127.0.0.1:{free_port()}"
    listen = [f"unix:{folder}/router.sock", address]
    user = " user root;" if os.geteuid() == 0 else ""
    changes = {"worker_processes auto;": f"worker_processes auto;{user}"}
    async with (
        run_process(folder, listen=listen, max_in_flight=4_096) as router,
        run_front(folder, routers=[address], changes=changes) as front,
    ):
        tls = Tls(root_certificates=front.ca, server_name="localhost")
        common = {"port": front.port, "ca": str(front.ca), "schema": json.dumps(SCHEMA)}
        attacks = {
            "flood": Attack(**common, key="x", resets_per_s=FLOOD_PER_S),  # type: ignore[arg-type]
            "unread": Attack(**common, key=router.key, unread=UNREAD),  # type: ignore[arg-type]
        }
        async with AsyncSsopClient(router.key, front.url, tls=tls, timeout_s=60) as client:
            await ask(client, front, Phase("warm"))
            quiet, twin = Phase("quiet"), Phase("twin")
            phases = {name: Phase(name) for name in attacks}
            before_mib = memory_mib(front)
            most_mib = dict.fromkeys(attacks, 0.0)
            done: dict[str, Sequence[str]] = {}
            for number in range(ROUNDS):
                await ask(client, front, quiet if number % 2 == 0 else twin)
                for name, attack in attacks.items():
                    with hostile_clients(attack) as hostile:
                        while hostile.count().streams < (UNREAD if name == "unread" else 1):
                            await asyncio.sleep(0.1)
                        first, begun_s = hostile.count().streams, time.perf_counter()
                        await ask(client, front, phases[name])
                        count, seconds = hostile.count(), time.perf_counter() - begun_s
                        most_mib[name] = max(most_mib[name], memory_mib(front))
                    rate = (
                        f"{(count.streams - first) / seconds:.0f} a second" if name == "flood" else f"{count.streams}"
                    )
                    done[name] = [f"{rate} streams over {count.connections} connections"]
                    await asyncio.sleep(1)
    for phase in (quiet, twin, *phases.values()):
        print(phase.line(quiet), *done.get(phase.name, ()), sep="; ")
    grown = ", ".join(f"{name} {most - before_mib:+.1f}" for name, most in most_mib.items())
    print(f"memory of the workers, MiB: {before_mib:.1f} before; at most {grown} (bar +100)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="flood") as name:
        asyncio.run(measure(Path(name)))
