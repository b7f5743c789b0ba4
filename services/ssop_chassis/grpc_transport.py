"""The reference transport: grpc.aio, with messages as bytes.

The defaults of gRPC buffer megabytes for a reader that has stopped and notice a dead peer after a minute, so the
windows are small, the bandwidth probe is off, and pings have a time-out of their own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import grpc
from grpc_reflection.v1alpha import reflection

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Metadata, Method, OnMessage, Service
from ssop_chassis.dispatch import Authenticate, CallState, Dispatcher, Observer
from ssop_chassis.errors import MeshError, from_status
from ssop_chassis.reflection import MethodPool
from ssop_chassis.tls import NO_TLS, Tls
from ssop_chassis.tracing import inject

STATUS_DETAILS: Final = "grpc-status-details-bin"
MAX_METADATA_BYTES: Final = 8192
_LOOKAHEAD_BYTES: Final = 16384
# Of calls that wait to be taken gRPC cancels some at random, from 1,000 on, without a reason that a caller could read.
# A crowd is to wait, or to be refused as OVERLOADED.
_PENDING_PER_CALL: Final = 4
# Pings that a stall had held up arrive together, and by default the third of them would end the connection.
_PING_STRIKES: Final = 20
_NEVER_MS: Final = 2**31 - 1
_COMPRESSIONS: Final = {"none": None, "gzip": grpc.Compression.Gzip}
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

Compression = Literal["none", "gzip"]
"""As MeshSettings.compression."""
Options = list[tuple[str, int]]
_WINDOWS: Final[Options] = [
    ("grpc.http2.lookahead_bytes", _LOOKAHEAD_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
]
# Pings every 5 s and a dead peer known after 7: keepalive_timeout alone does not bound it, ping_timeout does.
_KEEPALIVE: Final[Options] = [
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
]


class GrpcCall(CallState):
    """Server side of a call on grpc.aio."""

    def __init__(
        self,
        method: Method,
        request: bytes,
        context: "grpc.aio.ServicerContext[bytes, bytes]",
        default_timeout_s: float,
    ) -> None:
        timeout_s = context.time_remaining()
        super().__init__(
            method.path,
            _join_values(context.invocation_metadata() or ()),
            time.monotonic() + (default_timeout_s if timeout_s is None else timeout_s),
        )
        self.request = request
        self._context = context

    @property
    def peer(self) -> str:
        """See Call.peer."""
        return str(self._context.peer())

    async def read(self) -> bytes | None:
        """See Call.read."""
        message = await self._guard(self._context.read())
        return None if message is grpc.aio.EOF else message

    async def write(self, message: bytes) -> None:
        """See Call.write."""
        await self._guard(self._context.write(message))

    def send(self, message: bytes) -> Awaitable[None] | None:
        """See Call.send."""
        return self.write(message)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """See Call.send_initial_metadata."""
        await self._guard(self._context.send_initial_metadata(tuple(metadata.items())))

    async def _guard(self, operation: Any) -> Any:
        try:
            return await operation
        except grpc.aio.BaseError:
            # A write that was blocked when the client went away ends with an internal error instead of a cancel.
            if self._context.cancelled() or self._context.done():
                raise asyncio.CancelledError from None
            raise


class UnaryCall(GrpcCall):
    """A unary call: the one message that is written becomes the response."""

    response: bytes | None = None

    async def write(self, message: bytes) -> None:
        """See Call.write."""
        if self.response is not None:
            raise RuntimeError(f"{self.method} is unary: it writes one message")
        self.response = message


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a call by its method's path."""

    def __init__(
        self, services: Sequence[Service], dispatcher: Dispatcher, default_timeout_s: float, max_session_s: float
    ) -> None:
        self._dispatcher = dispatcher
        self._default_timeout_s = default_timeout_s
        self._max_session_s = max_session_s
        makers: dict[Arity, Callable[[Method], Any]] = {
            Arity.UNARY: lambda method: grpc.unary_unary_rpc_method_handler(self._unary(method)),
            Arity.SERVER_STREAM: lambda method: grpc.unary_stream_rpc_method_handler(self._stream(method)),
            Arity.BIDI: lambda method: grpc.stream_stream_rpc_method_handler(self._bidi(method)),
        }
        self._handlers = {m.path: makers[m.arity](m) for service in services for m in service.methods}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """See grpc.GenericRpcHandler."""
        return self._handlers.get(handler_call_details.method)

    def _unary(self, method: Method) -> Any:
        async def serve(request: bytes, context: Any) -> bytes:
            call = UnaryCall(method, request, context, self._default_timeout_s)
            await self._finish(method, call, context)
            if call.response is None:
                raise RuntimeError(f"{method.path} wrote no response")
            return call.response

        return serve

    def _stream(self, method: Method) -> Any:
        async def serve(request: bytes, context: Any) -> None:
            await self._finish(method, GrpcCall(method, request, context, self._default_timeout_s), context)

        return serve

    def _bidi(self, method: Method) -> Any:
        async def serve(_: Any, context: Any) -> None:
            await self._finish(method, GrpcCall(method, b"", context, self._max_session_s), context)

        return serve

    async def _finish(self, method: Method, call: GrpcCall, context: Any) -> None:
        error = await self._dispatcher.dispatch(method, call)
        trailing = tuple(call.trailing.items())
        if error is None:
            context.set_trailing_metadata(trailing)
            return
        status = error.to_status()
        trailing += ((STATUS_DETAILS, status.SerializeToString()),)
        await context.abort(_CODES[error.code], error.message, trailing)


class GrpcServer:
    """A running server. `addresses` are those it really listens on, with the port that 0 became."""

    def __init__(self, server: "grpc.aio.Server", addresses: Sequence[str]) -> None:
        self._server = server
        self.addresses = tuple(addresses)

    async def stop(self, grace_s: float) -> None:
        """Take no new call, let those that run finish for `grace_s` seconds, then cancel them."""
        await self._server.stop(grace_s)


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
    compression: Compression = "none",
) -> GrpcServer:
    """Serve on every address of `listen` (`host:port`, `unix:/path`). Raises OSError when one can't be bound."""
    server = grpc.aio.server(
        options=[
            *_WINDOWS,
            *_KEEPALIVE,
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.max_concurrent_streams", max_concurrent_calls),
            ("grpc.server.max_pending_requests", _PENDING_PER_CALL * max_concurrent_calls),
            ("grpc.server.max_pending_requests_hard_limit", _PENDING_PER_CALL * max_concurrent_calls),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 4000),
            ("grpc.http2.max_ping_strikes", _PING_STRIKES),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.so_reuseport", 0),
            # gRPC spreads the age by a tenth.
            ("grpc.max_connection_age_ms", max_connection_age_ms or _NEVER_MS),
            ("grpc.max_connection_age_grace_ms", max_connection_age_grace_ms or _NEVER_MS),
            ("grpc.max_connection_idle_ms", max_connection_idle_ms or _NEVER_MS),
        ],
        compression=_COMPRESSIONS[compression],
        maximum_concurrent_rpcs=max_concurrent_calls,
    )
    dispatcher = Dispatcher(authenticate, observer)
    server.add_generic_rpc_handlers(
        [_Handlers(services, dispatcher, default_deadline_ms / 1000, max_session_ms / 1000)]
    )
    if has_reflection:
        names = [*(s.name for s in services), reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server, pool=MethodPool())
    addresses = []
    for address in listen:
        try:
            if tls.is_listener_secure(address):
                port = server.add_secure_port(address, tls.server_credentials())
            else:
                port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"can't listen on {address}: in use, or not permitted") from error
        is_unix = address.startswith("unix:")
        addresses.append(address if is_unix else f"{address.rpartition(':')[0]}:{port}")
    await server.start()
    return GrpcServer(server, addresses)


class _Line:
    """A channel, its methods, and how many calls run on it."""

    def __init__(self, channel: "grpc.aio.Channel", version: int) -> None:
        self.channel = channel
        self.version = version
        self.calls = 0
        self.unary: dict[str, Any] = {}
        self.stream: dict[str, Any] = {}


class GrpcPeer:
    """A Peer over one channel; with TLS another one takes its place when the certificates change.

    `open_channel` makes a channel and says of which version of the certificates; `version` is the present one. A
    channel that was replaced closes when the last of its calls has ended.
    """

    def __init__(
        self,
        address: str,
        open_channel: Callable[[], "tuple[grpc.aio.Channel, int]"],
        version: Callable[[], int],
    ) -> None:
        self.address = address
        self._open_channel = open_channel
        self._version = version
        self._line = _Line(*open_channel())
        self._lines = {self._line}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_quiet = asyncio.Event()

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """See Peer.unary."""
        with self._take() as line:
            callable_ = line.unary.get(method) or line.unary.setdefault(method, line.channel.unary_unary(method))
            try:
                response: bytes = await callable_(request, timeout=timeout_s, metadata=_pairs(metadata))
            except grpc.aio.AioRpcError as error:
                raise _from_rpc_error(error) from None
            return response

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
        with self._take() as line:
            callable_ = line.stream.get(method) or line.stream.setdefault(method, line.channel.unary_stream(method))
            call = callable_(request, timeout=timeout_s, metadata=_pairs(metadata))
            try:
                while (message := await call.read()) is not grpc.aio.EOF:
                    if (pending := on_message(message)) is not None:
                        await pending
                return {str(k): v for k, v in await call.trailing_metadata() or ()}
            except grpc.aio.AioRpcError as error:
                raise _from_rpc_error(error) from None
            finally:
                # A stream that is merely dropped goes on in the background (grpc #43462).
                call.cancel()

    @contextmanager
    def _take(self) -> Iterator[_Line]:
        if self._line.version != self._version() and self._line in self._lines:
            before, self._line = self._line, _Line(*self._open_channel())
            self._lines.add(self._line)
            self._let_go(before)
        line = self._line
        line.calls += 1
        try:
            yield line
        finally:
            line.calls -= 1
            if not line.calls:
                self._is_quiet.set()
            self._let_go(line)

    def _let_go(self, line: _Line) -> None:
        """Close a channel that was replaced, once nothing runs on it."""
        if line is self._line or line.calls or line not in self._lines:
            return
        self._lines.discard(line)
        task = asyncio.ensure_future(line.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def finish(self) -> None:
        """Close once the calls that run have ended; each has a deadline."""
        while any(line.calls for line in self._lines):
            self._is_quiet.clear()
            await self._is_quiet.wait()
        await self.close()

    async def close(self) -> None:
        """See Peer.close."""
        lines, self._lines = self._lines, set()
        for line in lines:
            await line.channel.close()
        await asyncio.gather(*self._closing)


def connect(
    address: str,
    *,
    max_message_bytes: int = 4_194_304,
    tls: Tls = NO_TLS,
    server_name: str = "",
    compression: Compression = "none",
) -> GrpcPeer:
    """A peer at `address`; connects on the first call, and again with back-off whenever the connection is lost.

    `server_name` is the name that its certificate must carry, where neither the settings nor the address say it.
    """
    options: list[tuple[str, str | int]] = [
        *_WINDOWS,
        *_KEEPALIVE,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    certificates = tls.certificates
    packing = _COMPRESSIONS[compression]
    if certificates is None or not tls.is_peer_secure(address):

        def open_plain() -> "tuple[grpc.aio.Channel, int]":
            return grpc.aio.insecure_channel(address, options=options, compression=packing), 0

        return GrpcPeer(address, open_plain, lambda: 0)
    if name := tls.server_name(server_name):
        options.append(("grpc.ssl_target_name_override", name))

    def open_channel() -> "tuple[grpc.aio.Channel, int]":
        credentials, version = tls.channel_credentials()
        return grpc.aio.secure_channel(address, credentials, options=options, compression=packing), version

    return GrpcPeer(address, open_channel, lambda: certificates.current().version)


def _join_values(pairs: Iterable[tuple[str, str | bytes]]) -> dict[str, str | bytes]:
    """One value for each key; several are joined by commas (RFC 9110, 5.3).

    So a second key or principal never stands for the first: who reads one value finds a malformed one.
    """
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: (b"," if isinstance(several[0], bytes) else ", ").join(several) for key, several in values.items()}


def _pairs(metadata: Metadata | None) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(inject(metadata).items())


def _from_rpc_error(error: "grpc.aio.AioRpcError") -> MeshError:
    details: bytes | None = None
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS and isinstance(value, bytes):
            details = value
    code = error.code()
    if code is grpc.StatusCode.OK:
        return MeshError(ErrorReason.ERROR_REASON_INTERNAL, "a call ended without a status")
    return from_status(code.value[0], error.details() or "", details)
