"""Native servers that hold their answers back, and calls that say which of them answered."""

import asyncio
from typing import Any

from ssop_chassis.call import Arity, Call, Method, Service
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.transport import server_starter

METHOD = "/test.T/M"


class GatedServer:
    """A server that says which one it is, or waits until its gate opens."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        self.server: Any = None

    async def handle(self, call: Call) -> None:
        """Answer once the gate is open."""
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        await call.write(b"%d" % self.number)

    async def start(self, listen: str, **options: Any) -> str:
        """Listen; returns the address."""
        service = Service("test.T", [Method(METHOD, Arity.UNARY, self.handle, needs_principal=False)])
        self.server = await server_starter("native", "test")(
            [service], [listen], authenticate=inner_authenticate(bytes(32)), **options
        )
        return str(self.server.addresses[0])

    def cut(self) -> None:
        """Lose the listener and all connections, as a process that is killed does."""
        for listener in self.server._listeners:
            listener.close()
        for connection in list(self.server._connections):
            connection.abort()


async def ask(peer: Any) -> int:
    """The number of the server that answers."""
    return int(await peer.unary(METHOD, b"", timeout_s=60))


async def use_both(peer: Any) -> None:
    """Call until both servers are connected to."""

    async def are_joined() -> None:
        while any(line.ready() is None for line in peer._lines) or not peer._lines:
            await asyncio.gather(*(ask(peer) for _ in range(4)))

    await asyncio.wait_for(are_joined(), 60)
