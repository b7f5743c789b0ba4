"""The client of the reference transport, grpc.aio."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Metadata, OnMessage, wait_within
from ssop_chassis.errors import MeshError, from_status
from ssop_chassis.grpc_options import COMPRESSIONS, KEEPALIVE, STATUS_DETAILS, WINDOWS, Compression
from ssop_chassis.tls import NO_TLS, Tls
from ssop_chassis.tracing import inject


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
        due_s = time.monotonic() + timeout_s
        with self._take() as line:
            callable_ = line.stream.get(method) or line.stream.setdefault(method, line.channel.unary_stream(method))
            call = callable_(request, timeout=timeout_s, metadata=_pairs(metadata))
            try:
                while (message := await call.read()) is not grpc.aio.EOF:
                    if (pending := on_message(message)) is not None:
                        await wait_within(pending, due_s - time.monotonic())
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
        *WINDOWS,
        *KEEPALIVE,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    certificates = tls.certificates
    packing = COMPRESSIONS[compression]
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
