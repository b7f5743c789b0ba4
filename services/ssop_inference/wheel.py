"""Waits that end together: one timer of the loop for all that are due in the same tick."""

import asyncio
import heapq
import math
from typing import Final

TICK_S: Final = 0.002
"""Times are rounded up to this: at thousands of tokens a second the loop turns for ticks, and not for tokens."""
_ROUNDING_S: Final = 0.0005
"""uvloop rounds to the nearest millisecond; a timer that comes early would be one for nothing."""
_FAR_S: Final = 1.0
"""Waits beyond this have a timer of their own, so that what is given up early is not kept for long."""


class Wheel:
    """Belongs to one event loop. Holds nothing but waits that have not ended, for a second at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float = TICK_S) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._due: dict[int, list[asyncio.Future[bool]]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def wait_until(self, due_s: float) -> "asyncio.Future[bool]":
        """True at the tick after `due_s`, on the loop's clock. Whoever gives the future up sets it to false."""
        future: asyncio.Future[bool] = self._loop.create_future()
        if due_s - self._loop.time() > _FAR_S:
            timer = self._loop.call_at(due_s, _ring, (future,))
            future.add_done_callback(lambda _: timer.cancel())
            return future
        tick = math.ceil(due_s / self._tick_s)
        waiting = self._due.get(tick)
        if waiting is not None:
            waiting.append(future)
            return future
        self._due[tick] = [future]
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._schedule()
        return future

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._ticks[0] * self._tick_s + _ROUNDING_S, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = math.floor(self._loop.time() / self._tick_s)
        while self._ticks and self._ticks[0] <= now:
            _ring(self._due.pop(heapq.heappop(self._ticks)))
        if self._ticks:
            self._schedule()


def _ring(waiting: "list[asyncio.Future[bool]] | tuple[asyncio.Future[bool]]") -> None:
    for future in waiting:
        if not future.done():
            future.set_result(True)
