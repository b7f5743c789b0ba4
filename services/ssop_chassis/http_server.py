"""uvicorn, held to bounds that it has not by itself: the head of a request has a time-out."""

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

ABORT: Final = "ssop.abort"
"""In the `state` of a scope: a function that drops the connection at once."""
_BACKLOG: Final = 1_024


class Bounds(Protocol):
    """What a server's settings say of its connections."""

    @property
    def max_connections(self) -> int:
        """Connections at the same time; more are 503."""
        ...

    @property
    def idle_timeout_ms(self) -> int:
        """Time that a connection may be open without a whole request's head."""
        ...

    @property
    def max_header_bytes(self) -> int:
        """Largest head of a request."""
        ...


class EdgeProtocol(H11Protocol):
    """Closes a connection on which no whole head arrives in time, one that trickles in too."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        # For a client that has stopped reading: an ordinary close would wait for it.
        self.app_state = {**self.app_state, ABORT: transport.abort}
        self._watch_head()

    def handle_events(self) -> None:
        """See H11Protocol."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._unwatch_head()

    def send_400_response(self, msg: str) -> None:
        """See H11Protocol. A request whose body turns out to be no HTTP is over for the application, too."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """See H11Protocol."""
        self._watch_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._unwatch_head()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        self._unwatch_head()
        self._head_timer = self.loop.call_later(self.timeout_keep_alive, self._drop)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _drop(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class EdgeServer(uvicorn.Server):
    """A uvicorn server whose signals are its owner's business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def make_server(app: ASGIApp, bounds: Bounds, drain_ms: int) -> EdgeServer:
    """The server of an application."""
    config = uvicorn.Config(
        app,
        http=EdgeProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=bounds.max_connections,
        timeout_keep_alive=-(-bounds.idle_timeout_ms // 1000),
        timeout_graceful_shutdown=-(-drain_ms // 1000),
        h11_max_incomplete_event_size=bounds.max_header_bytes,
    )
    return EdgeServer(config)


Bound = tuple[list[socket.socket], list[str]]


def take_sockets(listeners: Sequence[socket.socket]) -> Bound | None:
    """Sockets that the service manager listens on, and their addresses; None where there are none."""
    return ([*listeners], [_show(listener) for listener in listeners]) if listeners else None


def _show(listener: socket.socket) -> str:
    name: Any = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"{host}:{name[1]}"


def bind_sockets(listen: Sequence[str]) -> Bound:
    """Sockets for `host:port` and `unix:/path`, and their addresses. Raises OSError."""
    sockets: list[socket.socket] = []
    addresses: list[str] = []
    try:
        for address in listen:
            bound, shown = _bind(address)
            sockets.append(bound)
            addresses.append(shown)
    except BaseException:
        for opened in sockets:
            opened.close()
        raise
    return sockets, addresses


def _bind(address: str) -> tuple[socket.socket, str]:
    if address.startswith("unix:"):
        path = address.removeprefix("unix:").removeprefix("//")
        Path(path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(old)
        return listener, address
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise OSError(f"can't listen on {address}: it is no host:port")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(f"can't listen on {address}: {error.strerror}") from error
    name: Any = listener.getsockname()
    return listener, f"{address.rpartition(':')[0]}:{name[1]}"
