"""A gRPC server of echoes and a client that times it, each as a program: `python -m helpers.echo_rpc serve|time`.

They run in the network namespaces of benchmarks, on the transport of SSOP_MESH_TRANSPORT at both ends, `native` unless
given.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any, Final

import uvloop

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.transport import connector, server_starter

TRANSPORT: Final[Any] = os.environ.get("SSOP_MESH_TRANSPORT", "native")
UNARY, STREAM = "/echo.T/Unary", "/echo.T/Stream"
MESSAGE = bytes(128)
_READY_S: Final = 30.0


async def _unary(call: Call) -> None:
    await call.write(call.request)


async def _stream(call: Call) -> None:
    for _ in range(int(call.request)):
        await call.write(MESSAGE)


async def serve(address: str) -> None:
    """Serve until killed."""
    methods = [
        Method(UNARY, Arity.UNARY, _unary, needs_principal=False),
        Method(STREAM, Arity.SERVER_STREAM, _stream, needs_principal=False),
    ]
    start = server_starter(TRANSPORT, "echo")
    server = await start([Service("echo.T", methods)], [address], authenticate=inner_authenticate(bytes(32)))
    await asyncio.Event().wait()
    await server.stop(0)


async def _wait_ready(peer: Any) -> None:
    """Until what is in front has its server, too."""
    deadline_s = time.monotonic() + _READY_S
    while True:
        try:
            await peer.unary(UNARY, MESSAGE, timeout_s=_READY_S)
        except MeshError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def measure(address: str, calls: int, messages: int) -> dict[str, float]:
    """Unary calls one after the other, median and 99th percentile, and messages a second of a stream."""
    peer, times, count = connector(TRANSPORT)(address), [], 0

    def add(_: bytes) -> None:
        nonlocal count
        count += 1

    try:
        await _wait_ready(peer)
        for _ in range(calls):
            began_s = time.perf_counter()
            await peer.unary(UNARY, MESSAGE, timeout_s=10)
            times.append((time.perf_counter() - began_s) * 1e6)
        began_s = time.perf_counter()
        await peer.stream(STREAM, str(messages).encode(), add, timeout_s=120)
        rate = count / (time.perf_counter() - began_s)
    finally:
        await peer.close()
    assert count == messages
    cuts = statistics.quantiles(times, n=100)
    return {"unary_p50_us": statistics.median(times), "unary_p99_us": cuts[98], "messages_per_s": rate}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        uvloop.run(serve(sys.argv[2]))
    else:
        print(json.dumps(uvloop.run(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
