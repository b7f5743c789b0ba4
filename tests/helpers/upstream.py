"""A model server that does what a test wants, byte by byte: raw sockets, so that it can break every rule."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from helpers.eventually import eventually

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Cut:
    """Close the connection here, in the middle of the body."""


@dataclass(frozen=True)
class Hang:
    """Send nothing more, until the client goes."""


Step = bytes | float | Cut | Hang
"""Raw bytes to send, seconds to wait, or an end."""


@dataclass
class Request:
    """What a client asked. `freed_s`: when the server saw it go, or its answer was whole, on the monotonic clock."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    is_cut: bool = False
    steps: int = 0
    """Steps of the answer that were played."""
    freed_s: float | None = None

    async def when_freed(self) -> float:
        """`freed_s`, once it is there."""
        await eventually(lambda: self.freed_s is not None)
        return self.freed_s or 0.0


def event(data: Any, *, name: str = "") -> bytes:
    """An event of a stream, as one HTTP chunk."""
    text = data if isinstance(data, str) else json.dumps(data)
    head = f"event: {name}\n" if name else ""
    return http_chunk(f"{head}data: {text}\n\n".encode())


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


END: Final = b"0\r\n\r\n"


def page(body: Any, *, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> list[Step]:
    """A whole answer: JSON, or text as it is."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(data)}", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + data]


Answer = Callable[[Request], Sequence[Step]]


def nothing(_: Request) -> Sequence[Step]:
    """No such page."""
    return page({"error": {"message": "no such page"}}, status="404 Not Found")


@dataclass
class ScriptedUpstream:
    """Answers by path; `answers` may be changed while it runs."""

    answers: dict[str, Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    """How many there have been."""
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def of(self, path: str) -> list[Request]:
        """What was asked of a path."""
        return [request for request in self.requests if request.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self.connections += 1
        self.writers.add(writer)
        try:
            while request := await _read_request(reader):
                self.requests.append(request)
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        gone = asyncio.create_task(reader.read(1))
        try:
            is_kept = await _play(request, self.answers.get(request.path, nothing)(request), writer, gone)
        except ConnectionError:
            is_kept = False
        finally:
            request.is_cut = gone.done()
            request.freed_s = time.monotonic()
            gone.cancel()
            (byte,) = await asyncio.gather(gone, return_exceptions=True)
        # A client that asks again before it has read the answer would lose a byte here; none does.
        request.is_cut = not is_kept or (request.is_cut and not isinstance(byte, asyncio.CancelledError))
        return not request.is_cut


async def _play(
    request: Request, steps: Sequence[Step], writer: asyncio.StreamWriter, gone: "asyncio.Task[bytes]"
) -> bool:
    """Whether the connection may be used again."""
    for step in steps:
        request.steps += 1
        if isinstance(step, bytes):
            writer.write(step)
            await writer.drain()
            await asyncio.sleep(0)
        elif isinstance(step, Cut):
            return False
        else:
            await asyncio.wait([gone], timeout=step if isinstance(step, float) else 30)
        if gone.done():
            return False
    return True


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(data) if data else None)


@asynccontextmanager
async def scripted_upstream(answers: Mapping[str, Answer], *, port: int = 0) -> AsyncIterator[ScriptedUpstream]:
    """A server on a port of 127.0.0.1; 0: any free one."""
    upstream = ScriptedUpstream(dict(answers))
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", port)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        for writer in list(upstream.writers):
            writer.transport.abort()
        await eventually(lambda: not upstream.writers)
