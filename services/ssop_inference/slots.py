# cython: annotation_typing=False
"""A bounded queue in front of a fixed number of slots: lower priority number first, then first come first served."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

_SMOOTHING: Final = 0.2
_MIN_RETRY_MS: Final = 100
_MAX_RETRY_MS: Final = 30_000


@dataclass(order=True, slots=True)
class _Waiter:
    priority: int
    number: int
    granted: asyncio.Future[None] = field(compare=False)


class Slot:
    """A slot that is held. `queue_s` is how long it was waited for."""

    __slots__ = ("_release", "_started_s", "queue_s")

    def __init__(self, release: Callable[[float], None], queue_s: float, started_s: float) -> None:
        self._release: Callable[[float], None] | None = release
        self._started_s = started_s
        self.queue_s = queue_s

    def release(self) -> None:
        """Give the slot back. Idempotent."""
        if self._release is not None:
            release, self._release = self._release, None
            release(self._started_s)


class SlotQueue:
    """Slots of one model. Belongs to one event loop. `clock` gives seconds, such as `loop.time`;
    `on_change` is called when `busy` or `waiting` has changed."""

    def __init__(
        self,
        slots: int,
        *,
        max_waiting: int,
        clock: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self._slots = slots
        self._max_waiting = max_waiting
        self._clock = clock
        self._waiters: list[_Waiter] = []
        self._numbers = itertools.count()
        self._held_s = 0.0
        self.busy = 0
        self.queue_s = 0.0
        """Moving average of the wait for a slot."""

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiters)

    def take_free(self) -> "Slot | None":
        """A slot, where one is free and nobody waits; None: `take` would wait."""
        if self.busy >= self._slots or self._waiters:
            return None
        self.busy += 1
        self.queue_s -= _SMOOTHING * self.queue_s
        self._on_change()
        return Slot(self._release, 0.0, self._clock())

    async def take(self, *, priority: int, deadline_s: float) -> "Slot":
        """Wait for a slot. Whoever gets it calls `release` once nothing runs on it any more.

        Raises OVERLOADED with a retry delay when the queue is full, DEADLINE_EXCEEDED (metadata `stage`) when
        the deadline passes in it.
        """
        if (slot := self.take_free()) is not None:
            return slot
        started_s = self._clock()
        await self._wait(priority, deadline_s, started_s)
        now_s = self._clock()
        queue_s = now_s - started_s
        self.queue_s += _SMOOTHING * (queue_s - self.queue_s)
        return Slot(self._release, queue_s, now_s)

    def _release(self, started_s: float) -> None:
        self._held_s += _SMOOTHING * (self._clock() - started_s - self._held_s)
        self.busy -= 1
        self._grant()

    async def _wait(self, priority: int, deadline_s: float, started_s: float) -> None:
        if len(self._waiters) >= self._max_waiting:
            raise MeshError(
                ErrorReason.ERROR_REASON_OVERLOADED,
                f"{self._max_waiting} requests wait for this model already",
                retry_after_ms=self._retry_after_ms(),
            )
        waiter = _Waiter(priority, next(self._numbers), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiters, waiter)
        self._on_change()
        try:
            async with asyncio.timeout(max(0.0, deadline_s - started_s)):
                await waiter.granted
        except BaseException as error:  # whatever ends the wait, the place in the queue is given up
            self._abandon(waiter)
            if isinstance(error, TimeoutError):
                raise MeshError(
                    ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
                    "the deadline passed before the model was free",
                    metadata={"stage": "queue"},
                ) from error
            raise

    def _abandon(self, waiter: _Waiter) -> None:
        if waiter.granted.done() and not waiter.granted.cancelled():
            # The slot was granted in the same turn of the loop in which the wait ended.
            self.busy -= 1
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            heapq.heapify(self._waiters)
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self.busy < self._slots:
            waiter = heapq.heappop(self._waiters)
            if not waiter.granted.done():
                self.busy += 1
                waiter.granted.set_result(None)
        self._on_change()

    def _retry_after_ms(self) -> int:
        rounds = (len(self._waiters) + 1) / self._slots
        return int(min(max(rounds * self._held_s * 1000, _MIN_RETRY_MS), _MAX_RETRY_MS))
