"""Signed webhooks over connections that are kept, at a cost that does not count beside what they set off.

HTTP/1.1 as far as the application's own door speaks it: every answer has a length.
"""

import asyncio
import secrets
import time
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import from_json

from ssop_cli.opinion_mesh import KEY_ID
from ssop_opinion.core.signature import sign
from ssop_opinion.webhook import PATH

MAX_CONNECTIONS: Final = 64
TIMEOUT_S: Final = 30.0
_MAX_HEAD_BYTES: Final = 16_384

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DoorError(Exception):
    """A request that came to no answer."""


class Door:
    """The webhook of a running application, and its metrics. Close it when done."""

    def __init__(self, url: str, secret: bytes) -> None:
        found = urlsplit(url)
        self._host, self._port = found.hostname or "127.0.0.1", found.port or 80
        self._secret = secret
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def post(self, body: bytes) -> Any:
        """Send posts, signed; the JSON of the answer, whatever its status. Raises DoorError."""
        timestamp, nonce = str(int(time.time())), secrets.token_hex(12)
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-ssop-key: {KEY_ID}\r\nx-ssop-timestamp: {timestamp}\r\n"
            f"x-ssop-nonce: {nonce}\r\nx-ssop-signature: {sign(self._secret, timestamp, nonce, body)}\r\n\r\n"
        )
        answer = await self._exchange(head.encode() + body)
        try:
            return from_json(answer)
        except ValueError as error:
            raise DoorError("the answer is no JSON") from error

    async def metrics(self) -> str:
        """The page of metrics. Raises DoorError."""
        return (await self._exchange(f"GET /metrics HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode())).decode()

    def close(self) -> None:
        """Drop the connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _exchange(self, request: bytes) -> bytes:
        async with self._room:
            connection: _Connection | None = None
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    connection = await self._connect()
                    connection[1].write(request)
                    body, is_kept = await _read_answer(connection[0])
            except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
                if connection is not None:
                    connection[1].close()
                raise DoorError(type(error).__name__) from error
            if is_kept:
                self._idle.append(connection)
            else:
                connection[1].close()
            return body

    async def _connect(self) -> _Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, limit=_MAX_HEAD_BYTES)


async def _read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """The body, and whether the connection serves another request. Raises EOFError, OSError and ValueError."""
    _, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers[b"content-length"])) if b"content-length" in headers else b""
    if not body and b"content-length" not in headers:
        raise ValueError("an answer without a length")
    return body, headers.get(b"connection") != b"close"
