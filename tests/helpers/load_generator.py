"""A load as a process of its own: `python -m helpers.load_generator` takes an order as JSON and prints its result.

Three clients: `native` on the connections of the mesh's own transport, `grpc` the stubs on gRPC's own library as any
application has them, `http` an OpenAI client on kept connections for proxies that speak nothing else.
"""

import asyncio
import gc
import json
import os
import ssl
import subprocess
import sys
import time
from typing import Any, Final

import grpc.aio
import uvloop

from helpers.load_figures import LoadOrder, LoadResult
from helpers.load_pace import Answer, OnDone, Pace
from helpers.load_requests import GENERATE, FrameCount, Requests, find_flaw, with_tests
from ssop.v1 import router_pb2_grpc
from ssop_transport import wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream

DEADLINE_S: Final = 20.0
CHECKED_EVERY: Final = 50
"""One of so many answers is read whole."""
_START_S: Final = 120.0
_GC_THRESHOLD: Final = 50_000


class _NativeCall:
    """One call on its way."""

    __slots__ = ("_answer", "_count", "_frames", "_kept", "_on_done", "stream")

    def __init__(self, frames: int, answer: Answer, on_done: OnDone, *, is_kept: bool) -> None:
        self._frames = frames
        self._answer = answer
        self._on_done = on_done
        self._count = FrameCount()
        self._kept: list[bytes] | None = [] if is_kept else None
        self.stream: Stream | None = None

    def news(self) -> None:
        """Something came."""
        stream, answer = self.stream, self._answer
        if stream is None:
            return
        while (message := stream.take()) is not None:
            if not answer.messages:
                answer.first_s = _now_s()
            answer.messages += 1
            answer.size_bytes += len(message)
            self._count.add(message)
            if self._kept is not None:
                self._kept.append(message)
        if stream.is_closed or stream.failure or (stream.is_ended and stream.tail is not None):
            stream.leave()
            answer.fault = self._judge(stream)
            if self._kept is not None and not answer.fault:
                answer.flaw = find_flaw(self._kept)
            self._on_done(answer)

    def _judge(self, stream: Stream) -> str:
        if stream.failure or stream.tail is None:
            return stream.failure or f"reset {stream.error_code}"
        pairs = dict(stream.tail.pairs)
        status = pairs.get(b"grpc-status", b"none")
        if status != b"0":
            return f"status {status.decode()}: {wire.decode_message(pairs.get(b'grpc-message', b''))}"[:120]
        return self._count.fault(self._frames)


class NativeAsker:
    """Calls on a few connections to each target, in turn."""

    def __init__(self, order: LoadOrder, connections: list[Connection]) -> None:
        self._order = order
        self._connections = connections
        self._requests = Requests(os.getpid())
        scheme = b"https" if order.ca_file else b"http"
        metadata = {"authorization": f"Bearer {order.key}"}
        self._headers = wire.request_headers(wire.begin_request(scheme, b"localhost", GENERATE), DEADLINE_S, metadata)

    @classmethod
    async def connect(cls, order: LoadOrder) -> "NativeAsker":
        """Make the connections. Raises OSError."""
        loop = asyncio.get_running_loop()
        context = None
        if order.ca_file:
            context = ssl.create_default_context(cafile=order.ca_file)
            context.set_alpn_protocols(["h2"])
        found = []
        for number in range(order.connections * len(order.targets)):
            target = order.targets[number % len(order.targets)]
            if target.startswith("unix:"):
                _, made = await loop.create_unix_connection(lambda: Connection(loop), target.removeprefix("unix:"))
            else:
                host, _, port = target.rpartition(":")
                name = "localhost" if context else None
                _, made = await loop.create_connection(
                    lambda: Connection(loop), host, int(port), ssl=context, server_hostname=name
                )
            found.append(made)
        return cls(order, found)

    def ask(self, number: int, due_s: float, on_done: OnDone) -> None:
        """See Asker."""
        call = _NativeCall(self._order.frames, Answer(due_s), on_done, is_kept=number % CHECKED_EVERY == 0)
        connection = self._connections[number % len(self._connections)]
        call.stream = connection.open(self._headers, call.news, self._requests.encode(number))

    def close(self) -> None:
        """Say goodbye."""
        for connection in self._connections:
            connection.close()


class GrpcAsker:
    """Generated stubs on grpc.aio, each channel with a connection of its own."""

    def __init__(self, order: LoadOrder) -> None:
        self._order = order
        self._requests = Requests(os.getpid())
        self._metadata = (("authorization", f"Bearer {order.key}"),)
        options = (("grpc.use_local_subchannel_pool", 1),)
        self._channels = [
            grpc.aio.insecure_channel(target, options=options) for target in [*order.targets] * order.connections
        ]
        self._stubs = [router_pb2_grpc.RouterServiceStub(channel) for channel in self._channels]
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, number: int, due_s: float, on_done: OnDone) -> None:
        """See Asker."""
        task = asyncio.get_running_loop().create_task(self._ask(number, Answer(due_s), on_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, number: int, answer: Answer, on_done: OnDone) -> None:
        stub = self._stubs[number % len(self._stubs)]
        kept, frames, is_ended = [], 0, False
        try:
            call = stub.Generate(self._requests.build(number), timeout=DEADLINE_S, metadata=self._metadata)
            async for chunk in call:
                if not answer.messages:
                    answer.first_s = _now_s()
                answer.messages += 1
                answer.size_bytes += chunk.ByteSize()
                for frame in chunk.frames:
                    if frame.seq:
                        frames += 1
                        is_ended = frame.HasField("end")
                if number % CHECKED_EVERY == 0:
                    kept.append(chunk.SerializeToString())
        except grpc.aio.AioRpcError as error:
            answer.fault = f"status {error.code().value[0]}: {error.details()}"[:120]
        else:
            answer.fault = "" if frames == self._order.frames and is_ended else f"{frames} frames"
        if kept and not answer.fault:
            answer.flaw = find_flaw(kept)
        on_done(answer)


class HttpAsker:
    """OpenAI's chat API, streamed; a connection for each request that is on its way."""

    def __init__(self, order: LoadOrder) -> None:
        host, _, self._port = order.targets[0].rpartition(":")
        self._host = host
        self._order = order
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, number: int, due_s: float, on_done: OnDone) -> None:
        """See Asker."""
        task = asyncio.get_running_loop().create_task(self._ask(number, Answer(due_s), on_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, number: int, answer: Answer, on_done: OnDone) -> None:
        try:
            reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
            body = json.dumps(
                {"model": "m", "messages": [{"role": "user", "content": f"{number}"}], "stream": True}
            ).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {self._order.key}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            async with asyncio.timeout(DEADLINE_S):
                head_bytes = await reader.readuntil(b"\r\n\r\n")
                answer.first_s = _now_s()
                text = await reader.readuntil(b"\r\n0\r\n\r\n")
            answer.size_bytes = len(head_bytes) + len(text)
            answer.messages = text.count(b'"content":"') + text.count(b'"content": "')
            is_whole = head_bytes.startswith(b"HTTP/1.1 200") and b"[DONE]" in text
            answer.fault = "" if is_whole and answer.messages >= self._order.frames else f"{answer.messages} pieces"
            self._free.append((reader, writer))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            answer.fault = type(error).__name__
        on_done(answer)


def _now_s() -> float:
    return time.perf_counter()


async def generate(order: LoadOrder) -> LoadResult:
    """Put the load of an order on its targets. Raises OSError where they can't be reached."""
    if order.client == "native":
        native = await NativeAsker.connect(order)
        try:
            return await Pace(order, native).run()
        finally:
            native.close()
    return await Pace(order, GrpcAsker(order) if order.client == "grpc" else HttpAsker(order)).run()


def run_order(order: LoadOrder) -> LoadResult:
    """Run an order in a process of its own. Raises subprocess.SubprocessError."""
    command = [sys.executable, "-m", "helpers.load_generator"]
    limit_s = _START_S + order.warm_s + order.seconds + DEADLINE_S
    text = json.dumps(order.to_json()).encode()
    environ = with_tests(os.environ)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, env=environ, timeout=limit_s, check=True)
    return LoadResult.from_json(json.loads(done.stdout))


def main() -> None:
    """See the module."""
    found: dict[str, Any] = json.load(sys.stdin)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    print(json.dumps(uvloop.run(generate(LoadOrder(**found))).to_json()))


if __name__ == "__main__":
    main()
