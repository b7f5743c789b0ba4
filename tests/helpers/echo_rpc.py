"""A gRPC server of echoes and a client that times it, each as a program: `python -m helpers.echo_rpc serve|time`.

They run in the network namespaces of benchmarks.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

UNARY, STREAM = "/echo/Unary", "/echo/Stream"
MESSAGE = bytes(128)


async def _unary(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return request


async def _stream(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
    for _ in range(int(request)):
        yield MESSAGE


async def serve(address: str) -> None:
    """Serve until killed."""
    server = grpc.aio.server()
    methods: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(_unary),
        "Stream": grpc.unary_stream_rpc_method_handler(_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", methods),))
    assert server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


async def measure(address: str, calls: int, messages: int) -> dict[str, float]:
    """Unary calls one after the other, median and 99th percentile, and messages a second of a stream."""
    async with grpc.aio.insecure_channel(address) as channel:
        unary: Any = channel.unary_unary(UNARY)
        await unary(MESSAGE, wait_for_ready=True, timeout=30)
        times: list[float] = []
        for _ in range(calls):
            began_s = time.perf_counter()
            await unary(MESSAGE, timeout=10)
            times.append((time.perf_counter() - began_s) * 1e6)
        began_s, count = time.perf_counter(), 0
        stream: Any = channel.unary_stream(STREAM)
        async for _ in stream(str(messages).encode(), timeout=120):
            count += 1
        rate = count / (time.perf_counter() - began_s)
    assert count == messages
    cuts = statistics.quantiles(times, n=100)
    return {"unary_p50_us": statistics.median(times), "unary_p99_us": cuts[98], "messages_per_s": rate}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
