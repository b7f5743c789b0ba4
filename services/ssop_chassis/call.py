"""Handlers and calls: what services are written against, whatever the transport below.

Messages are bytes here; handlers parse and serialise. A transport implements `Call` for handlers and `Peer` for
callers; `memory` serves unit tests, `grpc_server` and `grpc_peer` are the reference.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal

Metadata = Mapping[str, str | bytes]
"""Lower-case keys; values of keys that end in `-bin` are bytes, others are ASCII text."""


class Call(Protocol):
    """One RPC on its server. All times are in seconds on the loop's clock."""

    @property
    def method(self) -> str:
        """Full name, such as `/ssop.v1.RouterService/Generate`."""
        ...

    @property
    def metadata(self) -> Metadata:
        """What the client sent."""
        ...

    @property
    def principal(self) -> Principal:
        """Who calls. Raises MeshError where the method needs no principal and got none."""
        ...

    @property
    def peer(self) -> str:
        """Address of the client, for logs."""
        ...

    @property
    def request(self) -> bytes:
        """The one request message of a unary or server-streaming call; empty on client streams."""
        ...

    def remaining_s(self) -> float:
        """Time until the deadline; never infinite, since calls without one get the configured one (streams of the
        client a long one: what happens on them has deadlines of its own)."""
        ...

    async def read(self) -> bytes | None:
        """The next message of a client stream; None when the client has sent its last one."""
        ...

    async def write(self, message: bytes) -> None:
        """Send a message; returns when the transport has room for the next one. Unary handlers write once."""
        ...

    def send(self, message: bytes) -> Awaitable[None] | None:
        """As `write`, without waiting where there is room at once: None then. What else is returned is awaited before
        the next message; the message goes out even where that wait is cut."""
        ...

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send headers before the first message; at most once."""
        ...

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Set trailers; later calls add to earlier ones."""
        ...

    def carry(self, work: Coroutine[Any, Any, None], outlives: "Outlives") -> Awaitable[None]:
        """Run work that may outlive the call; what is returned is awaited at once, and raises its errors. When the
        client goes away, or the server stops, `outlives` says whether it goes on without them; otherwise it is
        cancelled, as all else of a call is."""
        ...


Outlives = Callable[["asyncio.Task[Any]"], bool]
"""Takes charge of the task that runs a work and returns True, or leaves it to be cancelled."""

Carry = Callable[[Coroutine[Any, Any, None], Outlives], Awaitable[None]]
"""See Call.carry."""


async def carry_apart(work: Coroutine[Any, Any, None], outlives: Outlives) -> None:
    """`Call.carry` in a task of its own, where whoever cancels the caller can't be made to ask first."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done() and not outlives(task):
            task.cancel()
        raise


Handler = Callable[[Call], Awaitable[None]]
"""Serves one call. Ends it well by returning, badly by raising MeshError."""

OnMessage = Callable[[bytes], Awaitable[None] | None]
"""Takes one message of a stream. An awaitable it returns is awaited before the next message is read, until the deadline
of the call."""


async def wait_within(pending: Awaitable[None], timeout_s: float) -> None:
    """Await what an OnMessage returned, so many seconds at most. Raises DEADLINE_EXCEEDED, once it was cancelled."""
    try:
        async with asyncio.timeout(timeout_s) as timeout:
            await pending
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, "Deadline Exceeded") from error
    finally:
        # It holds the task, which holds the error that ends it, which holds this frame.
        del timeout


class Peer(Protocol):
    """A server that this process calls. Errors are MeshError; a cancelled task cancels its call."""

    @property
    def address(self) -> str:
        """Where it is, such as `127.0.0.1:7300` or `unix:/run/ssop/cache.sock`."""
        ...

    async def unary(self, method: str, request: bytes, *, timeout_s: float, metadata: Metadata | None = None) -> bytes:
        """Call a unary method and return its response."""
        ...

    async def stream(
        self,
        method: str,
        request: bytes,
        on_message: OnMessage,
        *,
        timeout_s: float,
        metadata: Metadata | None = None,
    ) -> Metadata:
        """Call a server-streaming method; return its trailers when it ended well. Its time runs on while `on_message`
        makes it wait."""
        ...

    async def close(self) -> None:
        """Drop the connection; calls that run are cancelled."""
        ...


class Arity(Enum):
    """Who streams."""

    UNARY = "unary"
    SERVER_STREAM = "server_stream"
    BIDI = "bidi"


@dataclass(frozen=True, slots=True)
class Method:
    """A method and its handler. `needs_principal` is false for health, reflection and proofs of membership only."""

    path: str
    arity: Arity
    handler: Handler
    needs_principal: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """A service with all its methods."""

    name: str
    methods: Sequence[Method]


def _arity(method: MethodDescriptor) -> Arity:
    if method.client_streaming:
        return Arity.BIDI
    return Arity.SERVER_STREAM if method.server_streaming else Arity.UNARY


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")


def bind(descriptor: ServiceDescriptor, servicer: Any, *, needs_principal: bool = True) -> Service:
    """Bind each method of a proto service to the servicer's method of its name in snake case.

    Raises AttributeError when the servicer lacks one, so that a method is never forgotten.
    """
    return Service(
        descriptor.full_name,
        tuple(
            Method(
                f"/{descriptor.full_name}/{method.name}",
                _arity(method),
                getattr(servicer, _snake(method.name)),
                needs_principal,
            )
            for method in descriptor.methods
        ),
    )
