"""Threads behind a bounded queue with priorities: queries first, then indexing, then what is done ahead."""

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from itertools import count
from typing import Any, Final, TypeVar

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

T = TypeVar("T")
_RETRY_AFTER_MS: Final = 250


class Priority(IntEnum):
    """Lower goes first."""

    QUERY = 0
    INDEX = 1
    PREFETCH = 2


class WorkPool:
    """`threads` threads; at most `max_queue` callers wait for one. Used from one event loop.

    A cancelled caller stops waiting at once; a function that runs keeps its thread until it returns.
    """

    def __init__(self, name: str, *, threads: int, max_queue: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._idle = threads
        self._max_queue = max_queue
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._tried: set[asyncio.Future[Any]] = set()

    @property
    def queued(self) -> int:
        """Callers that wait."""
        return len(self._waiting)

    async def run(self, priority: Priority, function: Callable[[], T], *, is_admitted: bool = False) -> T:
        """Run a function on a thread, when it is its turn. Raises OVERLOADED when too many wait already.

        `is_admitted`: the next step of work that has begun; it waits however long the queue is.
        """
        if self._idle == 0:
            if not is_admitted and len(self._waiting) >= self._max_queue:
                raise MeshError(
                    ErrorReason.ERROR_REASON_OVERLOADED, "the retrieval queue is full", retry_after_ms=_RETRY_AFTER_MS
                )
            await self._wait(priority)
        else:
            self._idle -= 1
        return await self._submit(function)

    def try_run(self, function: Callable[[], T]) -> "asyncio.Future[T] | None":
        """Run a function when a thread is free, behind all else; None when too many that came so have not ended."""
        if len(self._tried) >= self._threads + self._max_queue:
            return None
        task = asyncio.ensure_future(self.run(Priority.PREFETCH, function, is_admitted=True))
        self._tried.add(task)
        task.add_done_callback(self._tried.discard)
        return task

    def close(self) -> None:
        """Let what runs finish, and end the threads."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def _wait(self, priority: Priority) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = (int(priority), next(self._order), turn)
        heapq.heappush(self._waiting, ticket)
        try:
            await turn
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                heapq.heapify(self._waiting)
            else:  # its turn had come
                self._release()
            raise

    def _submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        # The thread is free when the function has returned, not when its caller has gone.
        loop = asyncio.get_running_loop()
        inner = self._executor.submit(function)
        inner.add_done_callback(lambda _: _call_soon(loop, self._release))
        return asyncio.wrap_future(inner, loop=loop)

    def _release(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # a cancelled caller that has not run yet gives its turn to the next
                turn.set_result(None)
                return
        self._idle += 1


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
