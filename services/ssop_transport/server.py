"""Services over gRPC on libnghttp2."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final

from google.rpc import code_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Call, Metadata, Method, Service
from ssop_chassis.dispatch import Authenticate, CallState, Dispatcher, Observer
from ssop_chassis.errors import MeshError
from ssop_chassis.reflection import MethodPool
from ssop_chassis.tls import NO_TLS, Tls
from ssop_transport import compression, silence, wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream
from ssop_transport._wire import Room
from ssop_transport.life import NOTICE_S, Life, Lives
from ssop_transport.listening import BACKLOG, open_address, peer_name
from ssop_transport.secure import is_http2, listener_options, server_context

MAX_METADATA_BYTES: Final = 8_192
MAX_REFLECTIONS: Final = 16
GATHER_S: Final = 60.0
"""For the message of a request to come whole, whatever its deadline."""
# Requests whose message has not come, for each call that may run; gRPC's own transport lets as many wait.
_GATHERED_PER_CALL: Final = 4
# Of the largest size, that may wait to be whole or taken, on all connections.
_ROOM_MESSAGES: Final = 32
_LOOK_AGAIN_S: Final = 0.005
_log = logging.getLogger(__name__)


class NativeCall(CallState):
    """Server side of a call."""

    def __init__(
        self, method: Method, stream: Stream, peer: str, metadata: Metadata, deadline_s: float, *, is_packing: bool
    ) -> None:
        super().__init__(method.path, metadata, deadline_s)
        self.request = b""
        self.peer = peer
        self.is_unary = method.arity is Arity.UNARY
        self.task: asyncio.Task[None] | None = None
        self._stream = stream
        self._is_packing = is_packing
        self._has_written = False
        self._waiters: list[asyncio.Future[None]] = []

    def news(self) -> None:
        """Something happened on the stream."""
        if self._stream.is_closed and self.task is not None:
            self.task.cancel()
        elif self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def _wait(self) -> None:
        # A session reads and writes at the same time, so that there may be several who wait.
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def read(self) -> bytes | None:
        """See Call.read."""
        while (message := self._stream.take()) is None:
            if self._stream.failure or (self._stream.is_ended and self._stream.is_truncated):
                raise unreadable(self._stream)
            if self._stream.is_ended:
                return None
            await self._wait()
        return message

    async def write(self, message: bytes) -> None:
        """See Call.write."""
        if (pending := self.send(message)) is not None:
            await pending

    def send(self, message: bytes) -> Awaitable[None] | None:
        """See Call.send."""
        if self.is_unary and self._has_written:
            raise RuntimeError(f"{self.method} is unary: it writes one message")
        self._has_written = True
        stream = self._stream
        if not stream.has_responded:
            stream.respond(_PACKING_HEADERS if self._is_packing else _PLAIN_HEADERS)
        if self._is_packing and len(message) >= compression.LEAST_BYTES:
            stream.write(compression.pack(message), True)
        else:
            stream.write(message)
        return None if stream.has_room else self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while not self._stream.has_room:
            await self._wait()

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """See Call.send_initial_metadata."""
        self._stream.respond(wire.response_headers(metadata, is_packing=self._is_packing))

    def end(self, error: MeshError | None) -> None:
        """Send the trailers."""
        if error is None and self.is_unary and not self._has_written:
            error = MeshError(ErrorReason.ERROR_REASON_INTERNAL, "the handler wrote no response")
        try:
            pairs = wire.trailers(code_pb2.OK, "", self.trailing) if error is None else failed(error, self.trailing)
        except wire.WireError:
            _log.exception("trailers that can't be sent", extra={"method": self.method})
            pairs = failed(MeshError(ErrorReason.ERROR_REASON_INTERNAL, "internal error"))
        finish(self._stream, pairs)


_PLAIN_HEADERS: Final = wire.response_headers({})
_PACKING_HEADERS: Final = wire.response_headers({}, is_packing=True)


def failed(error: MeshError, trailing: Metadata | None = None) -> wire.Pairs:
    """Trailers of a call that ended badly."""
    details = {wire.STATUS_DETAILS: error.to_status().SerializeToString()}
    return wire.trailers(error.code, error.message, {**(trailing or {}), **details})


def finish(stream: Stream, pairs: wire.Pairs) -> None:
    """End a stream; with trailers alone where nothing was sent yet."""
    if stream.has_responded:
        stream.finish(pairs)
    else:
        stream.refuse([*_PLAIN_HEADERS, *pairs])


_FAILURES: Final = {
    "compressed": "a message is flagged as compressed, and no encoding was named",
    "flag_unknown": "a message has a flag that gRPC does not have",
    "damaged": "a compressed message can't be unpacked",
}


def unreadable(stream: Stream) -> MeshError:
    """What a client did wrong with its messages or headers."""
    if stream.failure == "message_too_large":
        text = f"Received message larger than max ({stream.failed_bytes} bytes)"
        return MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure == "metadata_too_large":
        text = f"metadata larger than max ({stream.failed_bytes} bytes)"
        return MeshError(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, text)
    if stream.failure == "no_room":
        text = "too many bytes of requests at once"
        return MeshError(ErrorReason.ERROR_REASON_OVERLOADED, text, retry_after_ms=1_000)
    if stream.failure:
        return MeshError(ErrorReason.ERROR_REASON_INTERNAL, _FAILURES.get(stream.failure, stream.failure))
    return MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, "the stream ended in the middle of a message")


def too_many() -> MeshError:
    """For a call above a bound of the server."""
    return MeshError(ErrorReason.ERROR_REASON_OVERLOADED, "too many calls at once", retry_after_ms=1_000)


class NativeServer:
    """A running server. `addresses` are those it really listens on, with the port that 0 became."""

    def __init__(
        self,
        services: Sequence[Service],
        dispatcher: Dispatcher,
        *,
        default_timeout_s: float,
        max_session_s: float,
        max_message_bytes: int,
        max_concurrent_calls: int,
        lives: Lives,
        choice: compression.Choice,
    ) -> None:
        self.addresses: tuple[str, ...] = ()
        self._methods = {method.path.encode(): method for service in services for method in service.methods}
        self._dispatcher = dispatcher
        self._default_timeout_s = default_timeout_s
        self._max_session_s = max_session_s
        self._max_message_bytes = max_message_bytes
        self._max_concurrent_calls = max_concurrent_calls
        self._lives = lives
        self._is_packing = choice == "gzip"
        self._room = Room(_ROOM_MESSAGES * max_message_bytes)
        self._connections: dict[Connection, Life] = {}
        self._is_stopped = False
        self._gathering: set[_Gathering] = set()
        self._silence = silence.Silence()
        self._watch: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.AbstractServer] = []

    async def listen(self, address: str, context: ssl.SSLContext | None) -> None:
        """Listen on one more address. Raises OSError."""
        loop = asyncio.get_running_loop()
        if address.startswith("unix:"):
            path = address.removeprefix("unix:").removeprefix("//")
            self._listeners.append(await loop.create_unix_server(self._connect, path, backlog=BACKLOG))
            found = address
        else:
            sockets = open_address(address)
            options = listener_options(context)
            for one in sockets:
                self._listeners.append(await loop.create_server(self._connect, sock=one, backlog=BACKLOG, **options))
            found = f"{address.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"
        self.addresses += (found,)

    def _connect(self) -> Connection:
        connection: Connection = Connection(
            asyncio.get_running_loop(),
            on_stream=lambda stream: self._take(connection, stream),
            on_made=self._made,
            on_lost=self._lost,
            max_message_bytes=self._max_message_bytes,
            max_header_bytes=MAX_METADATA_BYTES,
            max_streams=self._max_concurrent_calls,
            room=self._room,
        )
        return connection

    def _made(self, connection: Connection) -> None:
        """A client connected. One whose handshake in TLS fails never comes here."""
        if self._is_stopped or not is_http2(connection.transport):
            connection.abort()
            return
        self._connections[connection] = Life(connection, self._lives)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(silence.TICK_S, self._look)

    def _look(self) -> None:
        """A client that went without a word ends its calls; without this they would last until their deadlines."""
        self._watch = None
        connections = tuple(self._connections)
        for connection in connections:
            connection.look()
        self._silence.look(connections)
        if self._connections:
            self._watch = asyncio.get_running_loop().call_later(silence.TICK_S, self._look)

    def _lost(self, connection: Connection) -> None:
        life = self._connections.pop(connection, None)
        if life is not None:
            life.end()

    def _take(self, connection: Connection, stream: Stream) -> None:
        stream.listener = _nothing
        # It may have been reset in the read in which it came.
        if not stream.is_closed:
            self._begin(connection, stream)

    def _begin(self, connection: Connection, stream: Stream) -> None:
        """A client opened a stream: judge its headers, and gather what its method needs to begin."""
        headers = dict(stream.headers or ())
        encoding = headers.get(b"grpc-encoding")
        if encoding is not None and not compression.is_known(encoding):
            error = MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, "the encoding of the messages is not known")
            finish(stream, [*failed(error), wire.ACCEPTS])
            return
        if stream.failure:
            finish(stream, failed(unreadable(stream)))
            return
        if headers.get(b":method") != b"POST" or not wire.is_grpc(headers.get(b"content-type", b"")):
            status = b"405" if headers.get(b":method") != b"POST" else b"415"
            stream.refuse([(b":status", status)])
            return
        method = self._methods.get(headers.get(b":path", b""))
        if method is None:
            finish(stream, failed(MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, "no such method")))
            return
        try:
            metadata = wire.decode_metadata(stream.headers or ())
            sent = headers.get(b"grpc-timeout")
            is_bidi = method.arity is Arity.BIDI
            default_s = self._max_session_s if is_bidi else self._default_timeout_s
            timeout_s = default_s if sent is None else wire.decode_timeout(sent)
        except wire.WireError as error:
            finish(stream, failed(MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, str(error))))
            return
        if timeout_s <= 0:
            text = "the deadline was over when the call came"
            finish(stream, failed(MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, text)))
            return
        stream.forget_headers()
        peer = _peer_of(connection)
        is_packing = self._is_packing and compression.accepts_gzip(headers.get(b"grpc-accept-encoding", b""))
        deadline_s = time.monotonic() + timeout_s
        call = NativeCall(method, stream, peer, metadata, deadline_s, is_packing=is_packing)
        if is_bidi:
            self.start(method, call, stream)
        else:
            _Gathering(self, method, call, stream).news()

    def gather(self, gathering: "_Gathering") -> bool:
        """Count a request whose message has not come; False where there are too many."""
        if len(self._gathering) >= _GATHERED_PER_CALL * self._max_concurrent_calls:
            return False
        self._gathering.add(gathering)
        return True

    def leave(self, gathering: "_Gathering") -> None:
        """It is over."""
        self._gathering.discard(gathering)

    def start(self, method: Method, call: NativeCall, stream: Stream) -> None:
        if len(self._tasks) >= self._max_concurrent_calls:
            finish(stream, failed(too_many()))
            return
        stream.listener = call.news
        call.task = asyncio.ensure_future(self._serve(method, call, stream))
        self._tasks.add(call.task)
        call.task.add_done_callback(self._tasks.discard)

    async def _serve(self, method: Method, call: NativeCall, stream: Stream) -> None:
        try:
            error = await self._dispatcher.dispatch(method, call)
        except asyncio.CancelledError:
            # The client went, or the server stops; to one that is still there a reset says so.
            stream.reset()
            raise
        call.end(error)

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those that run finish for `grace_s` seconds, then cancel them."""
        self._is_stopped = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.announce_drain()
        for _ in range(int(min(NOTICE_S, grace_s) / _LOOK_AGAIN_S)):
            if all(connection.is_drain_heard for connection in self._connections):
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        for connection in list(self._connections):
            connection.drain()
        if self._tasks and grace_s > 0:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.close()


class _Gathering:
    """Waits until the one message of a request is whole."""

    def __init__(self, server: NativeServer, method: Method, call: NativeCall, stream: Stream) -> None:
        self._server, self._method, self._call, self._stream = server, method, call, stream
        self._timer: asyncio.TimerHandle | None = None

    def news(self) -> None:
        """Begin, wait on, or refuse."""
        stream = self._stream
        if stream.failure or (stream.is_ended and stream.is_truncated):
            self._refuse(unreadable(stream))
        elif stream.is_closed:
            self._stop_timer()
        elif stream.is_ended or stream.waiting_count > 1:
            self._end()
        elif self._timer is None:
            if not self._server.gather(self):
                self._refuse(too_many())
                return
            stream.listener = self.news
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(self._call.remaining_s(), GATHER_S), self._expire)

    def _end(self) -> None:
        message, more = self._stream.take(), self._stream.take()
        if self._stream.failure:
            self._refuse(unreadable(self._stream))
            return
        if message is None or more is not None or not self._stream.is_ended:
            text = "the method takes one message"
            self._refuse(MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, text))
            return
        self._stop_timer()
        self._call.request = message
        self._server.start(self._method, self._call, self._stream)

    def _expire(self) -> None:
        text = "the request did not arrive before its deadline"
        self._refuse(MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, text))

    def _refuse(self, error: MeshError) -> None:
        self._stop_timer()
        self._stream.listener = _nothing
        finish(self._stream, failed(error))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._server.leave(self)


def _nothing() -> None:
    """The listener of a stream that is over for us."""


def _peer_of(connection: Connection) -> str:
    transport: asyncio.BaseTransport | None = connection.transport
    return peer_name(None if transport is None else transport.get_extra_info("peername"))


def _reflecting(names: Sequence[str]) -> Service:
    """The reflection service, answered by gRPC's own servicer."""
    servicer = reflection.ReflectionServicer([*names, reflection.SERVICE_NAME], MethodPool())
    running = 0

    async def info(call: Call) -> None:
        nonlocal running
        # It needs no key and may last, so it must not fill what a server takes of calls.
        if running >= MAX_REFLECTIONS:
            raise too_many()
        running += 1
        try:
            await answer(call)
        finally:
            running -= 1

    async def answer(call: Call) -> None:
        while (message := await call.read()) is not None:
            request = reflection_pb2.ServerReflectionRequest.FromString(message)
            for response in servicer.ServerReflectionInfo(iter((request,)), None):
                await call.write(response.SerializeToString())

    path = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
    return Service(reflection.SERVICE_NAME, [Method(path, Arity.BIDI, info, needs_principal=False)])


async def start_server(
    services: Sequence[Service],
    listen: Sequence[str],
    *,
    authenticate: Authenticate,
    observer: Observer | None = None,
    default_deadline_ms: int = 30_000,
    max_session_ms: int = 86_400_000,
    max_message_bytes: int = 4_194_304,
    max_concurrent_calls: int = 1024,
    has_reflection: bool = False,
    tls: Tls = NO_TLS,
    max_connection_age_ms: int = 0,
    max_connection_age_grace_ms: int = 0,
    max_connection_idle_ms: int = 0,
    compression: compression.Choice = "none",
) -> NativeServer:
    """Serve on every address of `listen` (`host:port`, `unix:/path`). Raises OSError when one can't be bound."""
    served = [*services, _reflecting([service.name for service in services])] if has_reflection else list(services)
    server = NativeServer(
        served,
        Dispatcher(authenticate, observer),
        default_timeout_s=default_deadline_ms / 1000,
        max_session_s=max_session_ms / 1000,
        max_message_bytes=max_message_bytes,
        max_concurrent_calls=max_concurrent_calls,
        lives=Lives(max_connection_age_ms / 1000, max_connection_age_grace_ms / 1000, max_connection_idle_ms / 1000),
        choice=compression,
    )
    context = server_context(tls) if any(map(tls.is_listener_secure, listen)) else None
    try:
        for address in listen:
            await server.listen(address, context if tls.is_listener_secure(address) else None)
    except BaseException:
        with suppress(OSError):
            await server.stop(0)
        raise
    return server
