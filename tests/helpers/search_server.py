"""A local server that records what a search client sends, and answers as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

Reply = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came. `body` is JSON, or a list of JSON lines."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class SearchServer:
    """A running server. `answer` is asked for status and JSON of each reply."""

    def __init__(self, answer: Callable[[Request], Reply], product: str) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.url = ""
        self._product = product

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                request = await self._read(reader)
                self.requests.append(request)
                status, body = self.answer(request)
                data = json.dumps(body).encode()
                head = [f"HTTP/1.1 {status} Status", f"content-length: {len(data)}"]
                if self._product:
                    head += [f"x-elastic-product: {self._product}"]
                    head += ["content-type: application/vnd.elasticsearch+json;compatible-with=9"]
                else:
                    head += ["content-type: application/json; charset=UTF-8"]
                writer.write("\r\n".join([*head, "", ""]).encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        lines = [json.loads(line) for line in data.split(b"\n") if line]
        return Request(
            method, path, headers, lines if path.partition("?")[0].endswith("_bulk") else (lines or [None])[0]
        )


@asynccontextmanager
async def search_server(
    answer: Callable[[Request], Reply], product: str = "Elasticsearch"
) -> AsyncIterator[SearchServer]:
    """Serve until the block ends."""
    served = SearchServer(answer, product)
    server = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
