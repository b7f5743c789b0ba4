"""The in-memory transport: calls handlers in the same loop, with real deadlines, cancels and back-pressure.

For unit tests, and for a service that runs in its caller's process.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Arity, Handler, Metadata, Method, OnMessage, Service, wait_within
from ssop_chassis.dispatch import Authenticate, CallState, Dispatcher
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal

_WINDOW_MESSAGES: Final = 2


class MemoryCall(CallState):
    """Server side of a call in memory."""

    def __init__(self, method: str, request: bytes, metadata: Metadata, timeout_s: float) -> None:
        super().__init__(method, metadata, time.monotonic() + timeout_s)
        self.request = request
        self.peer = "memory"
        self.initial: Metadata | None = None
        self.inbound: asyncio.Queue[bytes | None] = asyncio.Queue(_WINDOW_MESSAGES)
        self.outbound: asyncio.Queue[bytes] = asyncio.Queue()
        self._has_room = asyncio.Event()

    async def read(self) -> bytes | None:
        """See Call.read."""
        return await self.inbound.get()

    async def write(self, message: bytes) -> None:
        """See Call.write."""
        if (pending := self.send(message)) is not None:
            await pending

    def send(self, message: bytes) -> Awaitable[None] | None:
        """See Call.send."""
        self.outbound.put_nowait(message)
        return self._wait_for_room() if self._is_full else None

    @property
    def _is_full(self) -> bool:
        return self.outbound.qsize() > _WINDOW_MESSAGES

    async def _wait_for_room(self) -> None:
        while self._is_full:
            self._has_room.clear()
            await self._has_room.wait()

    async def take(self) -> bytes:
        """The next message, for the client."""
        message = await self.outbound.get()
        self._has_room.set()
        return message

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """See Call.send_initial_metadata."""
        self.initial = metadata


class MemoryStream:
    """Client side of a call in memory: read, write, finish, cancel. Close it, or use it in `async with`."""

    def __init__(self, dispatcher: Dispatcher, method: Method, call: MemoryCall) -> None:
        self._call = call
        self._task = asyncio.ensure_future(dispatcher.dispatch(method, call))

    async def __aenter__(self) -> "MemoryStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    async def write(self, message: bytes) -> None:
        """Send a message of a client stream; returns when there is room."""
        await self._race(self._call.inbound.put(message))

    async def finish_writing(self) -> None:
        """Say that no more messages come."""
        await self._race(self._call.inbound.put(None))

    async def read(self) -> bytes | None:
        """The next message; None when the call ended well; raises the call's MeshError when it ended badly."""
        if self._call.outbound.empty():
            reader = asyncio.ensure_future(self._call.take())
            try:
                await asyncio.wait({reader, self._task}, return_when=asyncio.FIRST_COMPLETED)
                if reader.done():
                    return reader.result()
            finally:
                reader.cancel()
        if not self._call.outbound.empty():
            return await self._call.take()
        if self._task.cancelled():
            raise MeshError(ErrorReason.ERROR_REASON_CANCELLED, "the call was cancelled")
        if error := self._task.result():
            raise error
        return None

    async def _race(self, sending: Awaitable[None]) -> None:
        sender = asyncio.ensure_future(sending)
        await asyncio.wait({sender, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not sender.done():
            sender.cancel()

    @property
    def trailing(self) -> Metadata:
        """Trailers, once the call has ended."""
        return self._call.trailing

    async def cancel(self) -> None:
        """Go away, as a client whose connection is lost. Returns when the handler has ended."""
        self._task.cancel()
        await asyncio.wait({self._task})


class MemoryPeer:
    """A Peer whose server is in this process."""

    def __init__(self, services: Sequence[Service], authenticate: Authenticate, *, address: str = "memory") -> None:
        self.address = address
        self._dispatcher = Dispatcher(authenticate)
        self._methods: Mapping[str, Method] = {m.path: m for service in services for m in service.methods}

    def open(
        self,
        method: str,
        request: bytes = b"",
        *,
        timeout_s: float = 5.0,
        metadata: Metadata | None = None,
    ) -> MemoryStream:
        """Begin a call of any arity."""
        bound = self._methods.get(method)
        if bound is None:
            raise MeshError(ErrorReason.ERROR_REASON_UNSUPPORTED, f"no method {method}")
        call = MemoryCall(method, b"" if bound.arity is Arity.BIDI else request, metadata or {}, timeout_s)
        return MemoryStream(self._dispatcher, bound, call)

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """See Peer.unary."""
        async with self.open(method, request, timeout_s=timeout_s, metadata=metadata) as stream:
            response = await stream.read()
            if response is None:
                raise MeshError(ErrorReason.ERROR_REASON_INTERNAL, f"{method} sent no response")
            await stream.read()
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
        async with self.open(method, request, timeout_s=timeout_s, metadata=metadata) as stream:
            while (message := await stream.read()) is not None:
                if (pending := on_message(message)) is not None:
                    await wait_within(pending, due_s - time.monotonic())
            return stream.trailing

    async def close(self) -> None:
        """See Peer.close; there is no connection to drop."""


async def call_handler(
    handler: Handler,
    request: bytes,
    *,
    principal: Principal | None = None,
    metadata: Metadata | None = None,
    timeout_s: float = 5.0,
) -> list[bytes]:
    """Run one handler and return all that it wrote; raises its MeshError."""
    method = Method("/test/Method", Arity.SERVER_STREAM, handler, needs_principal=principal is not None)
    caller = principal if principal is not None else Principal("", "")
    peer = MemoryPeer([Service("test", [method])], lambda _: caller)
    messages: list[bytes] = []
    await peer.stream(method.path, request, messages.append, timeout_s=timeout_s, metadata=metadata)
    return messages
