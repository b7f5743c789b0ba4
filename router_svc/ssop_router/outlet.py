# cython: annotation_typing=False
"""Where the chunks of a request go, and what happens when nobody is there any more.

`outlet.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_router.core._relay import Way

Write = Callable[[bytes], Awaitable[None] | None]
"""Sends a chunk, which is the transport's from then on. What is returned is awaited before the next one, and that may
be cut; None where there is room at once."""


async def finish(pending: Awaitable[None] | None) -> None:
    """Wait for what has to be waited for."""
    if pending is not None:
        await pending


class Queue(Protocol):
    """What was written, and waits for a client that makes room for it in its own time."""

    async def finish_sending(self) -> None:
        """Wait until the client has had room for all of it."""
        ...

    def end(self) -> int:
        """Drop what the client has not made room for. Returns how many document frames that were."""
        ...


class Outlet(Protocol):
    """Takes chunks. Written to by one task only: that of the request."""

    def put(self, chunk: bytes, frames: int) -> Awaitable[None] | None:
        """Take a chunk with so many document frames, at once. What is returned is awaited before the next one."""
        ...


class DirectOutlet(Way):
    """Writes to the client's call until the client is gone, and then to nowhere, for a generation that goes on.

    The last step before the transport: `stream` is told to kernel's tracers.
    """

    def __init__(self, write: Write, stream: int) -> None:  # noqa: ARG002 - a way has both from its making
        self._task: asyncio.Task[None] | None = None

    def put(self, chunk: bytes, frames: int) -> Awaitable[None] | None:
        """See Outlet.put. Raises CANCELLED when the client is gone and nothing was detached."""
        pending = self.send(chunk, frames)
        return None if pending is None else self.wait(pending)

    async def wait(self, pending: Awaitable[None]) -> None:
        """Wait for what `send` returned. Raises as `put`."""
        if self.is_shut:
            # The client went between the write and the wait for it.
            if isinstance(pending, Coroutine):
                pending.close()
            return
        task = asyncio.current_task()
        cancelling = task.cancelling() if task is not None else 0
        self._task = task
        try:
            await pending
        except asyncio.CancelledError:
            if self.is_shut and task is not None and task.uncancel() <= cancelling:
                # `detach` woke this task from a write that would never have ended, and nothing else did.
                return
            if task is not None and task.cancelling():
                raise
            # The transport gave the write up; nobody cancelled this task.
            raise MeshError(ErrorReason.ERROR_REASON_CANCELLED, "the caller went away") from None
        finally:
            self._task = None

    def detach(self) -> None:
        """The client is gone and the generation goes on: drop what it writes."""
        self.is_shut = True
        if self._task is not None:
            self._task.cancel()
