"""A service with one method of each kind, served on every transport."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ssop_chassis.call import Arity, Call, Method, Peer, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.serving import wall_clock_ms
from ssop_chassis.transport import Kind, connector, server_starter

SECRET = bytes(range(32))
PRINCIPAL = Principal("acme", "k1", frozenset({"lite"}))
SIGNED = Signer(SECRET, "test", wall_clock_ms).metadata(PRINCIPAL)
WIRES = ("grpc", pytest.param("native", marks=pytest.mark.needs("native_transport")))
TRANSPORTS = ("memory", *WIRES)


@asynccontextmanager
async def serve(transport: str, services: Sequence[Service], folder: Path) -> AsyncIterator[Peer]:
    """A peer of the services on the transport."""
    authenticate = inner_authenticate(SECRET)
    if transport == "memory":
        yield MemoryPeer(services, authenticate)
        return
    kind: Kind = "grpc" if transport == "grpc" else "native"
    server = await server_starter(kind, "test")(
        services, [f"unix:{folder}/s.sock"], authenticate=authenticate, default_deadline_ms=5000
    )
    peer = connector(kind)(server.addresses[0])
    try:
        yield peer
    finally:
        await peer.close()
        await server.stop(0)


def one_method(arity: Arity, handler: object, *, needs_principal: bool = True) -> Service:
    """A service `test.T` with the method `/test.T/M`."""
    return Service("test.T", [Method("/test.T/M", arity, handler, needs_principal)])  # type: ignore[arg-type]


async def echo(call: Call) -> None:
    """Write the request back."""
    await call.write(call.request)


async def hang(_: Call) -> None:
    """Never answer."""
    await asyncio.Event().wait()
