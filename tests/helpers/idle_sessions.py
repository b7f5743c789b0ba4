"""Sessions on a router that are open and asked nothing."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ssop.v1.router_pb2 import SessionCommit, SessionRequest
from ssop_transport import wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream

SESSION: Final = "/ssop.v1.RouterService/Session"
_DEADLINE_S: Final = 7_200.0


class Session:
    """One session."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self._heard = asyncio.Event()
        self._asked = 0

    def news(self) -> None:
        """Something came."""
        stream = self.stream
        if stream is not None and (stream.take() is not None or stream.is_closed or stream.is_ended):
            self._heard.set()

    @property
    def is_open(self) -> bool:
        """Both sides may go on."""
        return self.stream is not None and not (self.stream.is_closed or self.stream.is_ended)

    async def ask(self, timeout_s: float) -> None:
        """Have the router answer. Raises TimeoutError, and ConnectionError where the session is over."""
        self._heard.clear()
        if self.stream is None or not self.is_open:
            raise ConnectionError("the session is over")
        # A commit of what was never begun begins nothing, and is answered once for each id.
        self._asked += 1
        question = SessionRequest(request_id=f"nobody-{self._asked}", commit=SessionCommit())
        self.stream.write(question.SerializeToString())
        async with asyncio.timeout(timeout_s):
            await self._heard.wait()
        if not self.is_open:
            raise ConnectionError(f"the session ended: {self.stream.tail and self.stream.tail.pairs}")


class IdleSessions:
    """Many sessions of one key, on a few connections."""

    def __init__(self, connections: Sequence[Connection], key: str) -> None:
        self._connections = connections
        metadata = {"authorization": f"Bearer {key}"}
        self._headers = wire.request_headers(wire.begin_request(b"http", b"localhost", SESSION), _DEADLINE_S, metadata)
        self.sessions: list[Session] = []

    @classmethod
    async def connect(cls, target: str, key: str, connections: int) -> "IdleSessions":
        """Connect to a router at `host:port`. Raises OSError."""
        loop = asyncio.get_running_loop()
        host, _, port = target.rpartition(":")
        made = [await loop.create_connection(lambda: Connection(loop), host, int(port)) for _ in range(connections)]
        return cls([connection for _, connection in made], key)

    async def open(self, count: int, at_once: int, timeout_s: float) -> None:
        """Open sessions, so many at once, each heard of before the next begin. Raises as Session.ask."""
        for first in range(0, count, at_once):
            opened = [self._open(number) for number in range(first, min(count, first + at_once))]
            await asyncio.gather(*(session.ask(timeout_s) for session in opened))

    def _open(self, number: int) -> Session:
        session = Session()
        connection = self._connections[number % len(self._connections)]
        session.stream = connection.open(self._headers, session.news)
        self.sessions.append(session)
        return session

    async def ask_all(self, at_once: int, timeout_s: float) -> None:
        """Have the router answer on each. Raises as Session.ask."""
        for first in range(0, len(self.sessions), at_once):
            await asyncio.gather(*(session.ask(timeout_s) for session in self.sessions[first : first + at_once]))

    def close(self) -> None:
        """End all."""
        for connection in self._connections:
            connection.close()
