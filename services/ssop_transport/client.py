"""Calls to services over gRPC on libnghttp2."""

import asyncio
import contextvars
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from google.rpc import code_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage
from ssop_chassis.errors import MeshError, from_status
from ssop_chassis.tls import NO_TLS, Tls
from ssop_chassis.tracing import inject
from ssop_transport import wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream
from ssop_transport.secure import Contexts

# Seconds of silence, counted one by one in turns of the loop, so that a loop that was held up blames nobody.
_TICK_S: Final = 1.0
_PING_AFTER_TICKS: Final = 5
_LOST_AFTER_TICKS: Final = 8
_CONNECT_TIMEOUT_S: Final = 5.0
_BACKOFF_S: Final = (0.1, 0.5)
_ATTEMPTS: Final = 2


class _Calling:
    """A call on its way; its task waits here for news."""

    def __init__(self, timeout_s: float) -> None:
        self.stream: Stream | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_late = False
        self._timer = self._loop.call_later(timeout_s, self._expire)

    def begin(self, connection: Connection, headers: wire.Pairs, request: bytes) -> None:
        """Send the request. Raises ConnectionError."""
        self.stream = stream = connection.open(headers, self.news)
        stream.write(request)
        stream.finish()

    def take(self) -> bytes | None:
        """The next message, if it is there."""
        return None if self.stream is None else self.stream.take()

    async def run(self) -> None:
        """Until the call is over."""
        while not self.is_over:
            await self.wait()

    def news(self) -> None:
        """Something happened on the stream."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _expire(self) -> None:
        self._is_late = True
        self.news()

    async def wait(self) -> None:
        """Wait for news. Raises MeshError when time is up."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._is_late:
            raise MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "Deadline Exceeded")

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        stream = self.stream
        if stream is None:
            return True
        return bool(stream.is_closed or stream.failure or (stream.is_ended and stream.trailers is not None))

    @property
    def is_refused(self) -> bool:
        """The server never looked at it (RFC 9113, 8.7): it may be sent again."""
        stream = self.stream
        return stream is not None and stream.error_code == wire.REFUSED_STREAM and stream.headers is None

    def leave(self) -> None:
        """Stop the clock, and break the call off if it still runs."""
        self._timer.cancel()
        stream = self.stream
        if stream is None:
            return
        stream.listener = _nothing
        if not stream.is_closed and (stream.failure or not stream.is_ended):
            stream.reset()


class _Streaming(_Calling):
    """Hands each message over in the turn of the loop in which it came, in the context of the caller."""

    def __init__(self, timeout_s: float, on_message: OnMessage) -> None:
        super().__init__(timeout_s)
        self._on_message = on_message
        self._context = contextvars.copy_context()
        self.pending: Awaitable[None] | None = None
        self.error: BaseException | None = None

    def news(self) -> None:
        """See _Calling.news."""
        self.deliver()
        if self.pending is not None or self.error is not None or self.is_over or self._is_late:
            super().news()

    def deliver(self) -> None:
        """Hand over what is there, until a message has to be waited for."""
        take, run, on_message = self.take, self._context.run, self._on_message
        while self.pending is None and self.error is None and (message := take()) is not None:
            try:
                self.pending = run(on_message, message)
            except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
                self.error = error

    async def run(self) -> None:
        """Until the stream is over and everything was handed over."""
        while True:
            self.deliver()
            if self.error is not None:
                raise self.error
            if self.pending is not None:
                await self.pending
                self.pending = None
            elif self.is_over:
                return
            else:
                await self.wait()


def _nothing() -> None:
    """The listener of a call that nobody waits for."""


class NativePeer:
    """A Peer over one connection, made on the first call, and again with back-off whenever it is lost."""

    def __init__(self, address: str, *, max_message_bytes: int, tls: Tls, server_name: str) -> None:
        self.address = address
        self._max_message_bytes = max_message_bytes
        is_secure = tls.certificates is not None and tls.is_peer_secure(address)
        self._contexts = Contexts(ssl.Purpose.SERVER_AUTH, tls) if is_secure else None
        host = address.rpartition(":")[0].strip("[]")
        self._server_name = tls.server_name(server_name) or host
        self._scheme = b"https" if is_secure else b"http"
        self._authority = b"localhost" if address.startswith("unix:") else address.encode()
        self._connection: Connection | None = None
        self._version = 0
        self._connecting: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._cause = ""
        self._watch: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._retired: set[Connection] = set()
        self._calls = 0
        self._is_quiet = asyncio.Event()
        self._silence: dict[Connection, tuple[float, int]] = {}

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """See Peer.unary."""
        calling = _Calling(timeout_s)
        await self._call(calling, method, request, timeout_s, metadata)
        message = calling.take()
        if message is None or calling.take() is not None:
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the answer is not one message")
        return message

    async def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Metadata:
        """See Peer.stream."""
        return await self._call(_Streaming(timeout_s, on_message), method, request, timeout_s, metadata)

    async def _call(
        self, calling: _Calling, method: str, request: bytes, timeout_s: float, metadata: Metadata | None
    ) -> Metadata:
        headers = wire.request_headers(self._scheme, self._authority, method, timeout_s, inject(metadata))
        self._calls += 1
        try:
            for attempt in range(_ATTEMPTS):
                calling.begin(self._ready() or await self._connect_within(timeout_s), headers, request)
                await calling.run()
                if not calling.is_refused or attempt + 1 == _ATTEMPTS:
                    break
            return _judge(calling.stream)
        except ConnectionError as error:
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, str(error)) from error
        finally:
            calling.leave()
            self._calls -= 1
            if not self._calls:
                self._is_quiet.set()
            self._close_retired()

    def _close_retired(self) -> None:
        for connection in [found for found in self._retired if not found.stream_count]:
            self._retired.discard(connection)
            connection.close()

    def _ready(self) -> Connection | None:
        """The connection, if calls may begin on it; one of older certificates is left to its calls."""
        connection = self._connection
        if connection is None or connection.is_draining:
            return None
        if self._contexts is not None and self._contexts.current()[1] != self._version:
            self._connection = None
            self._retired.add(connection)
            return None
        return connection

    async def _connect_within(self, timeout_s: float) -> Connection:
        if self._is_closed:
            raise MeshError(ErrorReason.ERROR_REASON_CANCELLED, "the peer is closed")
        loop = asyncio.get_running_loop()
        if self._connecting is None:
            if loop.time() < self._retry_s:
                raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, self._cause)
            self._connecting = loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        try:
            return await asyncio.wait_for(asyncio.shield(self._connecting), timeout_s)
        except TimeoutError:
            raise MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except (OSError, ssl.SSLError):
            raise MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, self._cause) from None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(loop, on_lost=self._lost, max_message_bytes=self._max_message_bytes)

        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            if self.address.startswith("unix:"):
                path = self.address.removeprefix("unix:").removeprefix("//")
                _, connection = await loop.create_unix_connection(make, path)
            elif self._contexts is None:
                host, _, port = self.address.rpartition(":")
                _, connection = await loop.create_connection(make, host.strip("[]"), int(port))
            else:
                context, self._version = self._contexts.current()
                host, _, port = self.address.rpartition(":")
                transport, connection = await loop.create_connection(
                    make, host.strip("[]"), int(port), ssl=context, server_hostname=self._server_name
                )
                if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                    connection.abort()
                    raise OSError("the server does not speak HTTP/2")
        return connection

    def _connected(self, task: "asyncio.Task[Connection]") -> None:
        self._connecting = None
        loop = asyncio.get_running_loop()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._failures += 1
            first_s, most_s = _BACKOFF_S
            self._retry_s = loop.time() + min(most_s, first_s * 2.0 ** min(self._failures - 1, 8))
            self._cause = f"can't connect to {self.address}: {error or type(error).__name__}"
            return
        self._failures = 0
        self._connection = task.result()
        if self._watch is None:
            self._watch = loop.call_later(_TICK_S, self._keep_alive)

    def _lost(self, connection: Connection) -> None:
        self._retired.discard(connection)
        if connection is self._connection:
            self._connection = None

    def _keep_alive(self) -> None:
        """A connection that is silent while calls run has to answer a ping; one that does not is dropped."""
        self._watch = None
        present = {*self._retired, *([self._connection] if self._connection is not None else [])}
        before, self._silence = self._silence, {}
        for connection in present:
            heard_s, ticks = before.get(connection, (0.0, 0))
            is_silent = connection.stream_count > 0 and connection.heard_s == heard_s
            self._silence[connection] = (connection.heard_s, ticks + 1 if is_silent else 0)
        for connection, (_, ticks) in self._silence.items():
            if ticks >= _LOST_AFTER_TICKS:
                connection.abort()
            elif ticks == _PING_AFTER_TICKS:
                connection.ping()
        if present:
            self._watch = asyncio.get_running_loop().call_later(_TICK_S, self._keep_alive)

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
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await self._connecting
        for connection in [*self._retired, *([self._connection] if self._connection is not None else [])]:
            connection.close()


def _judge(stream: Stream | None) -> Metadata:
    """Trailing metadata of a call that is over and went well. Raises MeshError for one that did not."""
    if stream is None:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call that never began")
    if stream.failure == "message_too_large":
        text = f"Received message larger than max ({stream.failed_bytes} bytes)"
        raise MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, f"the answer can't be read: {stream.failure}")
    if stream.trailers is None:
        if stream.headers is not None:
            _judge_http(dict(stream.headers))
        raise from_status(wire.status_of_reset(stream.error_code), f"the stream was reset: {stream.error_code}")
    pairs = dict(stream.trailers)
    status = pairs.get(b"grpc-status", b"")
    if not status.isdigit():
        _judge_http(dict(stream.headers or stream.trailers))
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call ended without a status")
    try:
        metadata = wire.decode_metadata(stream.trailers)
    except wire.WireError as error:
        raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, str(error)) from error
    if int(status) == code_pb2.OK:
        if stream.is_truncated:
            raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the answer ends in the middle of a message")
        return metadata
    details = metadata.get(wire.STATUS_DETAILS)
    message = wire.decode_message(pairs.get(b"grpc-message", b""))
    raise from_status(int(status), message, details if isinstance(details, bytes) else None)


def _judge_http(headers: dict[bytes, bytes]) -> None:
    status = headers.get(b":status", b"")
    if status != b"200":
        raise from_status(wire.status_of_http(status), f"Received http2 header with status: {status.decode()}")


def connect(
    address: str,
    *,
    max_message_bytes: int = 4_194_304,
    tls: Tls = NO_TLS,
    server_name: str = "",
) -> NativePeer:
    """A peer at `address`; see ssop_chassis.grpc_transport.connect."""
    return NativePeer(address, max_message_bytes=max_message_bytes, tls=tls, server_name=server_name)
