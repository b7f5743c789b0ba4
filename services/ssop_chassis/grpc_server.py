"""The server of the reference transport, grpc.aio."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection

from ssop_chassis.call import Arity, Metadata, Method, Service
from ssop_chassis.dispatch import Authenticate, CallState, Dispatcher, Observer
from ssop_chassis.errors import MeshError, as_mesh_error
from ssop_chassis.grpc_options import COMPRESSIONS, KEEPALIVE, STATUS_DETAILS, WINDOWS, Compression
from ssop_chassis.reflection import MethodPool
from ssop_chassis.tls import NO_TLS, Tls

# Of calls that wait to be taken gRPC cancels some at random, from 1,000 on, without a reason that a caller could read.
# A crowd is to wait, or to be refused as OVERLOADED.
_PENDING_PER_CALL: Final = 4
# Pings that a stall had held up arrive together, and by default the third of them would end the connection.
_PING_STRIKES: Final = 20
_NEVER_MS: Final = 2**31 - 1
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


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
        self._sending: asyncio.Future[None] | None = None

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
        if self._sending is not None:
            # Shielded: whoever gives this up leaves what was sent before.
            await asyncio.shield(self._sending)
        await self._hand_over(message)

    async def _hand_over(self, message: bytes) -> None:
        await self._guard(self._context.write(message))

    def send(self, message: bytes) -> Awaitable[None] | None:
        """See Call.send."""
        # A write of grpc.aio that is dropped before its first step sends nothing.
        self._sending = asyncio.ensure_future(self._send_after(self._sending, message))
        return asyncio.shield(self._sending)

    async def _send_after(self, before: "asyncio.Future[None] | None", message: bytes) -> None:
        if before is not None:
            await before
        await self._hand_over(message)

    async def finish_sending(self, error: MeshError | None) -> MeshError | None:
        """Wait until what was sent is the transport's. The error that the call ends with: the one that it has, or that
        of a call that has no time for that.
        """
        if self._sending is None:
            return error
        # Not awaited: whoever cancels this would cancel a write, and one that failed is not to hide the call's error.
        await asyncio.wait({self._sending}, timeout=self.remaining_s())
        if error is not None:
            return error
        if not self._sending.done():
            self._sending.cancel()
            return as_mesh_error(TimeoutError())
        self._sending.result()
        return None

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

    async def _hand_over(self, message: bytes) -> None:
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
        error = await call.finish_sending(await self._dispatcher.dispatch(method, call))
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
            *WINDOWS,
            *KEEPALIVE,
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
        compression=COMPRESSIONS[compression],
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


def _join_values(pairs: Iterable[tuple[str, str | bytes]]) -> dict[str, str | bytes]:
    """One value for each key; several are joined by commas (RFC 9110, 5.3).

    So a second key or principal never stands for the first: who reads one value finds a malformed one.
    """
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: (b"," if isinstance(several[0], bytes) else ", ").join(several) for key, several in values.items()}
