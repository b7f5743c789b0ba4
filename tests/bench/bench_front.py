"""What stands in front costs: gRPC between two hosts through nginx, plain, behind the XDP guard, behind the DPDK front.

`make bench-front`, as root. A round of each in turn, so that the machine's moods hit all alike; medians over rounds.
SSOP_MESH_TRANSPORT: what carries the calls at both ends, `native` unless given. BENCH_ROUNDS: 5 unless given.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.echo_rpc import TRANSPORT
from helpers.fronts import build, counters, front_counters, mounted_bpffs, running_front, running_nginx
from helpers.live_mesh import wait_until
from helpers.two_hosts import TwoHosts, run, two_hosts

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
CALLS, MESSAGES = 500, 30_000 if TRANSPORT == "grpc" else 600_000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(name: str) -> float:
    """CPU seconds of all processes of a name."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if head.partition("(")[2] == name:
            total += sum(map(int, rest.split()[11:13])) / TICKS
    return total


@contextmanager
def echo_server(folder: Path) -> Iterator[Path]:
    """The server of echoes on a unix socket."""
    path = folder / "echo.sock"
    server = subprocess.Popen([sys.executable, "-m", "helpers.echo_rpc", "serve", f"unix:{path}"])
    try:
        wait_until(path.exists, 30, "the server of echoes listens")
        yield path
    finally:
        server.kill()
        server.wait()


@contextmanager
def nothing() -> Iterator[None]:
    """No front."""
    yield


def measure(hosts: TwoHosts, target: str) -> dict[str, float]:
    """One round, with CPU of nginx and of the front in microseconds for each message."""
    before = {name: cpu_s(name) for name in ("nginx", "ssop-front")}
    program = [sys.executable, "-m", "helpers.echo_rpc", "time", target, str(CALLS), str(MESSAGES)]
    found: dict[str, float] = json.loads(run(*hosts.on_client(*program)))
    for name, was_s in before.items():
        found[f"{name} CPU us"] = (cpu_s(name) - was_s) * 1e6 / (CALLS + MESSAGES)
    return found


def main() -> None:
    """Print a table."""
    rounds: dict[str, list[dict[str, float]]] = {"plain": [], "xdp": [], "dpdk": []}
    with tempfile.TemporaryDirectory() as name, mounted_bpffs():
        folder = Path(name)
        front, guard = build("dpdk", folder), build("xdp", folder)
        dropped = moved = 0
        with echo_server(folder) as router:
            for number in range(ROUNDS):
                for kind, results in rounds.items():
                    with two_hosts() as hosts:
                        program = str(guard / "ssop-xdp-guard")
                        stats: dict[str, int] = {}
                        if kind == "dpdk":
                            with (
                                running_front(hosts, front) as prefix,
                                running_nginx(hosts, folder / f"{kind}{number}", router) as target,
                            ):
                                results.append(measure(hosts, target))
                                stats = front_counters(prefix)
                        else:
                            if kind == "xdp":
                                wire = hosts.server_wire
                                run(*hosts.on_server(program, "attach", wire, "--object", str(guard / "guard.bpf.o")))
                            with running_nginx(hosts, folder / f"{kind}{number}", router) as target:
                                results.append(measure(hosts, target))
                            if kind == "xdp":
                                stats = counters(run(*hosts.on_server(program, "stats", hosts.server_wire)))
                        moved += stats.get("passed", 0)
                        dropped += sum(
                            count
                            for name, count in stats.items()
                            if name in {"malformed", "flags", "syn_rate", "packet_rate", "syn_guard"}
                            or name.endswith("_full_total")
                        )
    names = list(rounds["plain"][0])
    print(f"{TRANSPORT} at both ends, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {ROUNDS} rounds")
    print(f"{CALLS} calls and {MESSAGES:,} messages of 128 bytes; medians")
    print(f"| front | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for kind, results in rounds.items():
        print(f"| {kind} | {' | '.join(f'{statistics.median(r[n] for r in results):.1f}' for n in names)} |")
    print(f"packets through the guards: {moved}; dropped: {dropped}")


if __name__ == "__main__":
    main()
