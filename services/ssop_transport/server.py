# cython: annotation_typing=False
"""Services over gRPC on libnghttp2."""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Service
from ssop_chassis.dispatch import Authenticate, Dispatcher, Observer
from ssop_chassis.errors import MeshError
from ssop_chassis.tls import NO_TLS, Tls
from ssop_transport import compression, silence, wire
from ssop_transport._connection import Connection
from ssop_transport._stream import Stream
from ssop_transport._wire import Room
from ssop_transport.gathering import Gatherings
from ssop_transport.life import NOTICE_S, Life, Lives, make_place, most_connections
from ssop_transport.listening import BACKLOG, open_address, peer_name
from ssop_transport.opening import Opening, Refusal, read_head
from ssop_transport.reflecting import reflecting
from ssop_transport.secure import is_http2, listener_options, server_context
from ssop_transport.served import NativeCall, failed, finish, refuse, too_many, unreadable

MAX_METADATA_BYTES: Final = 8_192
# Requests whose message has not come, for each call that may run; gRPC's own transport lets as many wait.
_GATHERED_PER_CALL: Final = 4
# Of the largest size, that may wait to be whole or taken, on all connections.
_ROOM_MESSAGES: Final = 32
_LOOK_AGAIN_S: Final = 0.005


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
        self._most_connections = most_connections()
        self._is_stopped = False
        self._gatherings = Gatherings(_GATHERED_PER_CALL * max_concurrent_calls, self._start)
        self._silence = silence.Silence()
        self._watch: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[NativeCall, asyncio.Task[None]] = {}
        self._listeners: list[asyncio.AbstractServer] = []

    async def listen(self, address: str, context: ssl.SSLContext | None) -> None:
        """Listen on one more address. Raises OSError."""
        loop = self._loop
        if address.startswith("unix:"):
            path = address.removeprefix("unix:").removeprefix("//")
            try:
                self._listeners.append(await loop.create_unix_server(self._connect, path, backlog=BACKLOG))
            except OSError as error:
                raise OSError(error.errno, f"can't listen on {address}: {error.strerror or error}") from error
            found = address
        else:
            sockets = open_address(address)
            options = listener_options(context)
            for one in sockets:
                self._listeners.append(await loop.create_server(self._connect, sock=one, backlog=BACKLOG, **options))
            found = f"{address.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"
        self.addresses += (found,)

    def _connect(self) -> Connection:
        return Connection(
            self._loop,
            on_stream=self._begin,
            on_made=self._made,
            on_lost=self._lost,
            max_message_bytes=self._max_message_bytes,
            max_header_bytes=MAX_METADATA_BYTES,
            max_streams=self._max_concurrent_calls,
            room=self._room,
        )

    def _made(self, connection: Connection) -> None:
        """A client connected. One whose handshake in TLS fails never comes here."""
        if self._is_stopped:
            # Its handshake went on meanwhile: what it asks for is not looked at, and may be asked elsewhere.
            connection.drain()
            return
        if not is_http2(connection.transport) or not make_place(self._connections, self._most_connections):
            connection.abort()
            return
        self._connections[connection] = Life(connection, self._lives)
        transport = connection.transport
        connection.peer = peer_name(None if transport is None else transport.get_extra_info("peername"))
        if self._watch is None:
            self._watch = self._loop.call_later(silence.TICK_S, self._look)

    def _look(self) -> None:
        """A client that went without a word ends its calls; without this they would last until their deadlines."""
        self._watch = None
        connections = tuple(self._connections)
        for connection in connections:
            connection.look()
        self._silence.look(connections)
        if self._connections:
            self._watch = self._loop.call_later(silence.TICK_S, self._look)

    def _lost(self, connection: Connection) -> None:
        life = self._connections.pop(connection, None)
        if life is not None:
            life.end()

    def _begin(self, connection: Connection, stream: Stream) -> None:
        """A client opened a stream: judge its head, and gather what its method needs to begin."""
        if stream.is_closed:
            # It was reset in the read in which it came.
            return
        head = stream.head
        opening: Opening | Refusal | None = None if head is None else head.meaning
        if head is not None and opening is None:
            opening = head.meaning = read_head(head.pairs, self._methods)
        if stream.failure and not (isinstance(opening, Refusal) and opening.is_of_encoding):
            finish(stream, failed(unreadable(stream)))
        elif isinstance(opening, Opening):
            self._open(opening, connection, stream)
        elif opening is not None:
            refuse(stream, opening)

    def _open(self, opening: Opening, connection: Connection, stream: Stream) -> None:
        is_bidi = opening.is_bidi
        timeout_s = self._max_session_s if is_bidi else self._default_timeout_s
        if stream.timeout is not None:
            try:
                timeout_s = wire.decode_timeout(stream.timeout)
            except wire.WireError as error:
                finish(stream, failed(MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, str(error))))
                return
        if timeout_s <= 0:
            text = "the deadline was over when the call came"
            finish(stream, failed(MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, text)))
            return
        is_packing = self._is_packing and opening.accepts_gzip
        call = NativeCall(opening, stream, connection.peer or "", monotonic() + timeout_s, is_packing)
        if is_bidi or stream.has_one_message:
            self._start(call)
        else:
            self._gatherings.begin(call)

    def _start(self, call: NativeCall) -> None:
        if len(self._tasks) >= self._max_concurrent_calls:
            finish(call.stream, failed(too_many()))
            return
        call.listen()
        # Named, since asyncio would make up a name for each.
        call.task = self._tasks[call] = asyncio.Task(self._serve(call), loop=self._loop, name=call.method)

    async def _serve(self, call: NativeCall) -> None:
        try:
            if call.task is None:
                # Its client went before it began; one that is still there, while the server stops, may ask elsewhere.
                call.stream.reset(wire.REFUSED_STREAM)
                return
            call.has_begun = True
            error = await self._dispatcher.dispatch(call.served, call)
        except asyncio.CancelledError:
            # The client went, or the server stops; to one that is still there a reset says so.
            call.stream.reset()
            raise
        finally:
            call.let_go()
            del self._tasks[call]
        if not call.is_left:
            call.end(error)

    def _running(self) -> "list[asyncio.Task[None]]":
        """Calls that have somebody to end for."""
        return [task for call, task in self._tasks.items() if not call.is_left]

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
        if (running := self._running()) and grace_s > 0:
            await asyncio.wait(running, timeout=grace_s)
        for call in self._tasks:
            call.leave()
        await asyncio.gather(*self._running(), return_exceptions=True)
        for connection in list(self._connections):
            connection.close()


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
    served = [*services, reflecting([service.name for service in services])] if has_reflection else list(services)
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
