"""What a call costs on each transport, both ends: `make bench-transport`.

A server and a client, a process each, on a unix socket; CPU is that of both processes. The peer is grpc.aio, in the
same run, in turns.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from helpers.live_mesh import wait_until
from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import Kind, connector, server_starter

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
REQUEST, FRAME, FRAMES = bytes(512), bytes(60), 12
CALLS = {"grpc": 1_500, "native": 15_000}
WIDTHS = (1, 16, 64)


async def echo(call: Call) -> None:
    """Write the request back."""
    await call.write(call.request)


async def stream(call: Call) -> None:
    """Write a dozen messages."""
    for _ in range(FRAMES):
        await call.write(FRAME)


SERVICE = Service(
    "bench.B",
    [
        Method("/bench.B/Unary", Arity.UNARY, echo, needs_principal=False),
        Method("/bench.B/Stream", Arity.SERVER_STREAM, stream, needs_principal=False),
    ],
)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def serve(kind: Kind, path: str) -> None:
    """Serve until killed."""
    server = await server_starter(kind, "bench")(
        [SERVICE], [f"unix:{path}"], authenticate=inner_authenticate(bytes(32))
    )
    await asyncio.Event().wait()
    await server.stop(0)


async def measure(kind: Kind, path: str, server: int) -> list[tuple[str, float, float, float]]:
    """(what, calls a second, CPU of the client and of the server in microseconds a call) of one round."""
    peer = connector(kind)(f"unix:{path}")
    found = []
    for what in ("Unary", "Stream"):
        for width in WIDTHS:

            async def call(count: int, what: str = what) -> None:
                for _ in range(count):
                    if what == "Unary":
                        await peer.unary("/bench.B/Unary", REQUEST, timeout_s=60)
                    else:
                        await peer.stream("/bench.B/Stream", REQUEST, lambda _: None, timeout_s=60)

            await call(50)
            each = CALLS[kind] // width
            own_s, server_s, began_s = time.process_time(), cpu_s(server), time.perf_counter()
            await asyncio.gather(*(call(each) for _ in range(width)))
            took_s, count = time.perf_counter() - began_s, each * width
            own_us = (time.process_time() - own_s) / count * 1e6
            server_us = (cpu_s(server) - server_s) / count * 1e6
            found.append((f"{what} c{width}", count / took_s, own_us, server_us))
    await peer.close()
    return found


def main() -> None:
    """Print a table."""
    results: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    kinds: tuple[Kind, ...] = ("grpc", "native")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for kind in kinds:
                path = f"{folder}/{kind}{number}"
                server = subprocess.Popen([sys.executable, __file__, "serve", kind, path])
                try:
                    wait_until(Path(path).exists, 60, "the server listens")
                    command = [sys.executable, __file__, "measure", kind, path, str(server.pid)]
                    for what, *numbers in json.loads(subprocess.run(command, check=True, capture_output=True).stdout):
                        results.setdefault((what, kind), []).append(tuple(numbers))
                finally:
                    server.kill()
                    server.wait()
    print(f"{ROUNDS} rounds, medians; calls a second, and CPU of client + server in microseconds for each call")
    print("| call | grpc.aio | native | times cheaper |\n|---|---|---|---|")
    for what in dict.fromkeys(what for what, _ in results):
        rows = [[statistics.median(column) for column in zip(*results[what, kind], strict=True)] for kind in kinds]
        cells = [f"{rate:,.0f}/s, {own:.0f} + {server:.0f} us" for rate, own, server in rows]
        print(f"| {what} | {cells[0]} | {cells[1]} | {sum(rows[0][1:]) / sum(rows[1][1:]):.0f} |")
    print(f"largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve("native" if sys.argv[2] == "native" else "grpc", sys.argv[3]))
    elif sys.argv[1:2] == ["measure"]:
        kind: Kind = "native" if sys.argv[2] == "native" else "grpc"
        print(json.dumps(uvloop.run(measure(kind, sys.argv[3], int(sys.argv[4])))))
    else:
        main()
