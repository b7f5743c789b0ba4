# cython: annotation_typing=False
"""Calls to services over gRPC on libnghttp2."""

import asyncio
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage
from ssop_chassis.errors import MeshError
from ssop_chassis.tls import NO_TLS, Tls
from ssop_chassis.tracing import inject
from ssop_transport import compression, silence, wire
from ssop_transport._connection import Connection
from ssop_transport.calling import Calling, Streaming, judge
from ssop_transport.line import NEEDED_BACKOFF_S, SPARE_BACKOFF_S, Line, Way
from ssop_transport.secure import Contexts
from ssop_transport.target import Endpoint, parse, resolve

# While a server does not answer, the next one is tried beside it ("Happy Eyeballs", RFC 8305, section 5).
_STAGGER_S: Final = 0.25
# Names are looked up again this long after the last time, where a server is to be found.
_RESOLVE_SOON_S: Final = 5.0
_RESOLVE_LATE_S: Final = 30.0
_ATTEMPTS: Final = 5


class NativePeer:
    """A Peer over connections to the servers that its address stands for, made when calls need them.

    A call goes to the connection with the fewest; while all are busy one more server is connected to, out of its way.
    """

    def __init__(
        self, address: str, *, max_message_bytes: int, tls: Tls, server_name: str, choice: compression.Choice
    ) -> None:
        self.address = address
        is_secure = tls.certificates is not None and tls.is_peer_secure(address)
        contexts = Contexts(ssl.Purpose.SERVER_AUTH, tls) if is_secure else None
        self._fault = ""
        try:
            self._names = parse(address)
        except ValueError as error:
            # Nodes name their own addresses: one that is none must cost its calls and nobody else's.
            self._names, self._fault = (), str(error)
        self._way = Way(contexts, tls.server_name(server_name), max_message_bytes)
        self._is_literal = all(name.is_literal for name in self._names)
        self._scheme = b"https" if is_secure else b"http"
        self._authority = b"localhost" if not self._names or self._names[0].path else self._names[0].text.encode()
        self._is_packing = choice == "gzip"
        # Methods are those that a process calls: few, and always the same texts.
        self._beginnings: dict[str, wire.Pairs] = {}
        self._lines: list[Line] = []
        self._leaving: list[Line] = []
        self._turn = 0
        self._resolved_s = 0.0
        self._resolving: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[Connection] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._calls = 0
        self._is_quiet = asyncio.Event()

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """See Peer.unary."""
        calling = Calling()
        await self._call(calling, method, request, timeout_s, metadata)
        stream = calling.stream
        message = stream.take() if stream is not None and stream.has_one_message else None
        if message is None:
            # It may be that it can't be unpacked.
            judge(stream)
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the answer is not one message")
        return message

    def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Coroutine[Any, Any, Metadata]:
        """See Peer.stream."""
        return self._call(Streaming(on_message), method, request, timeout_s, metadata)

    async def _call(
        self, calling: Calling, method: str, request: bytes, timeout_s: float, metadata: Metadata | None
    ) -> Metadata:
        is_packing = self._is_packing
        headers = wire.request_headers(self._beginning(method), timeout_s, inject(metadata))
        is_packed = is_packing and len(request) >= compression.LEAST_BYTES
        if is_packed:
            request = compression.pack(request)
        self._enter(calling, timeout_s)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                connection = self._pick() or await self._join_within(calling.remaining_s())
                try:
                    calling.begin(connection, headers, request, is_packed)
                except ConnectionError:
                    # It was lost, or began to drain, since it was picked.
                    if attempt == _ATTEMPTS:
                        raise
                    continue
                while (awaited := calling.advance()) is not None:
                    await awaited
                if attempt == _ATTEMPTS or not calling.may_begin_anew():
                    break
            return judge(calling.stream)
        except ConnectionError as error:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, str(error)) from error
        finally:
            self._leave(calling)

    def _beginning(self, method: str) -> wire.Pairs:
        beginning = self._beginnings.get(method)
        if beginning is None:
            beginning = self._beginnings[method] = wire.begin_request(
                self._scheme, self._authority, method, is_packing=self._is_packing
            )
        return beginning

    def _enter(self, calling: Calling, timeout_s: float) -> None:
        self._calls += 1
        if self._watch is None:
            self._watch_on()
        calling.start(timeout_s)

    def _leave(self, calling: Calling) -> None:
        calling.leave()
        self._calls -= 1
        if not self._calls:
            self._is_quiet.set()

    def _pick(self) -> Connection | None:
        """The connection with the fewest calls; None where there is none."""
        lines = self._lines
        if len(lines) == 1:
            return lines[0].ready()
        best: Connection | None = None
        is_best_doubtful, is_one_missing = True, False
        self._turn += 1
        for place in range(len(lines)):
            line = lines[(self._turn + place) % len(lines)]
            connection = line.ready()
            if connection is None:
                is_one_missing = True
            elif best is None or (line.is_doubtful, connection.stream_count) < (is_best_doubtful, best.stream_count):
                best, is_best_doubtful = connection, line.is_doubtful
        if best is not None and is_one_missing and (best.stream_count or is_best_doubtful):
            self._join_spare()
        return best

    def _join_spare(self) -> None:
        """Connect to one more server, for the calls that come after."""
        now_s = asyncio.get_running_loop().time()
        for line in self._lines:
            if line.ready() is None and line.is_due(now_s, SPARE_BACKOFF_S):
                # What becomes of it the line knows.
                line.join()
                return

    async def _join_within(self, timeout_s: float) -> Connection:
        if self._is_closed:
            raise MeshError(ErrorReason.ERROR_REASON_CANCELLED, "the peer is closed")
        if self._fault:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, self._fault)
        loop = asyncio.get_running_loop()
        if self._joining is None:
            if self._lines and not any(line.is_due(loop.time(), NEEDED_BACKOFF_S) for line in self._lines):
                raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, self._lines[0].cause)
            self._joining = loop.create_task(self._join())
            self._joining.add_done_callback(self._joined)
        try:
            # Not wait_for, which before Python 3.12 may lose the cancel of its caller.
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._joining)
        except TimeoutError:
            raise MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except OSError as error:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, str(error)) from None

    async def _join(self) -> Connection:
        """Connect to the first server that answers. Raises OSError."""
        loop = asyncio.get_running_loop()
        if not self._lines or (not self._is_literal and loop.time() - self._resolved_s >= _RESOLVE_SOON_S):
            await self._resolve()
        due = [line for line in self._lines if line.is_due(loop.time(), NEEDED_BACKOFF_S)]
        tried: set[asyncio.Task[Connection]] = set()
        while due or tried:
            if due:
                tried.add(due.pop(0).join())
            done, tried = await asyncio.wait(
                tried, timeout=_STAGGER_S if due else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    return task.result()
        raise OSError(self._lines[0].cause or f"can't connect to {self.address}")

    def _joined(self, task: "asyncio.Task[Connection]") -> None:
        self._joining = None
        if not task.cancelled():
            # Seen, even where nobody waits for it any more.
            task.exception()

    def _watch_on(self) -> None:
        if self._watch is None and not self._is_closed:
            self._watch = asyncio.get_running_loop().call_later(silence.TICK_S, self._keep_watch)

    async def _resolve(self) -> None:
        """Look the names up. Servers that they no longer stand for finish their calls. Raises OSError."""
        self._resolved_s = asyncio.get_running_loop().time()
        try:
            found = await resolve(self._names)
        except OSError:
            if not self._lines:
                raise
            # What was known is better than nothing.
            return
        lines: dict[Endpoint, Line] = {line.endpoint: line for line in self._lines}
        self._lines = [lines.pop(endpoint) if endpoint in lines else Line(endpoint, self._way) for endpoint in found]
        for line in lines.values():
            line.leave()
            self._leaving.append(line)

    def _keep_watch(self) -> None:
        self._watch = None
        is_watched = False
        for line in (*self._lines, *self._leaving):
            is_watched |= line.tick()
        for line in tuple(self._leaving):
            if not line.has_retired:
                self._leaving.remove(line)
        loop = asyncio.get_running_loop()
        if is_watched:
            self._watch_on()
            if not self._is_literal and self._resolving is None and loop.time() - self._resolved_s >= _RESOLVE_LATE_S:
                self._resolving = loop.create_task(self._resolve())
                self._resolving.add_done_callback(self._resolved)

    def _resolved(self, _: "asyncio.Task[None]") -> None:
        self._resolving = None

    async def finish(self) -> None:
        """Close once the calls that run have ended; each has a deadline."""
        while self._calls:
            self._is_quiet.clear()
            await self._is_quiet.wait()
        await self.close()

    async def close(self) -> None:
        """See Peer.close."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        for task in (self._joining, self._resolving):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task
        for line in (*self._lines, *self._leaving):
            await line.close()


def connect(
    address: str,
    *,
    max_message_bytes: int = 4_194_304,
    tls: Tls = NO_TLS,
    server_name: str = "",
    compression: compression.Choice = "none",
) -> NativePeer:
    """A peer at `address`, which may stand for several servers; see ssop_chassis.grpc_peer.connect."""
    return NativePeer(
        address, max_message_bytes=max_message_bytes, tls=tls, server_name=server_name, choice=compression
    )
