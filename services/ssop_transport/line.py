"""The connection to one server: made when it is asked for, watched, lost, and made again after a pause."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ssop_transport._connection import Connection
from ssop_transport.secure import Contexts
from ssop_transport.silence import Silence
from ssop_transport.target import Endpoint

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
_DOUBT_AFTER_TICKS: Final = 1
_BACKOFF_S: Final = 0.1
# A server that is needed is tried twice a second; one that others stand in for, less often.
NEEDED_BACKOFF_S: Final = 0.5
SPARE_BACKOFF_S: Final = 10.0
_DOUBLINGS: Final = 8


@dataclass(frozen=True, slots=True)
class Way:
    """How servers are connected to. `server_name`: what a certificate has to carry; empty: the host of its address."""

    contexts: Contexts | None
    server_name: str
    max_message_bytes: int


class Line:
    """Belongs to one peer and its loop. Connections on which no call may begin are left to those that they have."""

    def __init__(self, endpoint: Endpoint, way: Way) -> None:
        self.endpoint = endpoint
        self.cause = ""
        self.is_doubtful = False
        """Calls run on it, and nothing came for a second or two: others are asked first."""
        self._way = way
        self._connection: Connection | None = None
        self._version = 0
        self._retired: set[Connection] = set()
        self._joining: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._failed_s = 0.0
        self._silence = Silence()
        self._is_closed = False

    def ready(self) -> Connection | None:
        """The connection, if calls may begin on it."""
        connection = self._connection
        if connection is None:
            return None
        contexts = self._way.contexts
        if connection.is_draining or (contexts is not None and contexts.current()[1] != self._version):
            self._retire()
            return None
        return connection

    def is_due(self, now_s: float, most_s: float) -> bool:
        """Whether it may be tried again. `most_s`: the longest pause."""
        pause_s = min(most_s, _BACKOFF_S * 2.0 ** min(self._failures - 1, _DOUBLINGS)) if self._failures else 0.0
        return now_s >= self._failed_s + pause_s

    def join(self) -> "asyncio.Task[Connection]":
        """Connect, unless that is under way. The task raises OSError."""
        if self._joining is None:
            self._joining = asyncio.get_running_loop().create_task(self._connect())
            self._joining.add_done_callback(self._joined)
        return self._joining

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        way, name = self._way, self.endpoint.name

        def make() -> Connection:
            return Connection(loop, on_lost=self._lost, max_message_bytes=way.max_message_bytes)

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if name.path:
                    _, connection = await loop.create_unix_connection(make, name.path)
                elif way.contexts is None:
                    _, connection = await loop.create_connection(make, self.endpoint.host, name.port)
                else:
                    connection = await self._connect_securely(way.contexts, make)
        except (OSError, ssl.SSLError) as error:
            text = f"can't connect to {self.endpoint.text}: {error or type(error).__name__}"
            raise ConnectionError(text) from error
        return connection

    async def _connect_securely(self, contexts: Contexts, make: Callable[[], Connection]) -> Connection:
        name = self.endpoint.name
        context, self._version = contexts.current()
        transport, connection = await asyncio.get_running_loop().create_connection(
            make, self.endpoint.host, name.port, ssl=context, server_hostname=self._way.server_name or name.host
        )
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            connection.abort()
            raise OSError("the server does not speak HTTP/2")
        return connection

    def _joined(self, task: "asyncio.Task[Connection]") -> None:
        self._joining = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failures += 1
            self._failed_s = asyncio.get_running_loop().time()
            self.cause = str(error)
            if not isinstance(error, OSError):
                # A fault of ours; the server is tried again all the same.
                _log.error("a connection could not be made", exc_info=error)
            return
        self._failures = 0
        self._retire()
        connection = task.result()
        if self._is_closed:
            connection.close()
        elif not connection.is_lost:
            self._connection = connection

    def _lost(self, connection: Connection) -> None:
        self._retired.discard(connection)
        if connection is self._connection:
            self._connection = None

    def _retire(self) -> None:
        if self._connection is not None:
            self._retired.add(self._connection)
            self._connection = None

    def _connections(self) -> Iterator[Connection]:
        yield from tuple(self._retired)
        if self._connection is not None:
            yield self._connection

    def tick(self) -> bool:
        """Look at what is silent, once for each tick. Returns whether there is anything to watch."""
        self._silence.look(self._connections())
        current = self._connection
        self.is_doubtful = current is not None and self._silence.ticks(current) >= _DOUBT_AFTER_TICKS
        self.close_retired()
        return bool(self._retired) or self._connection is not None

    @property
    def has_retired(self) -> bool:
        """Connections that are left to their calls."""
        return bool(self._retired)

    def close_retired(self) -> None:
        """Close what the last call has left."""
        for connection in tuple(self._retired):
            if not connection.stream_count:
                self._retired.discard(connection)
                connection.close()

    def leave(self) -> None:
        """Begin no more calls here."""
        self._retire()
        self.close_retired()

    async def close(self) -> None:
        """Drop everything, a connection that is made in this turn too."""
        self._is_closed = True
        if self._joining is not None:
            self._joining.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await self._joining
        for connection in self._connections():
            connection.close()
