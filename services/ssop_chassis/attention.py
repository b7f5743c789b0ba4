# cython: annotation_typing=False
"""Time-outs that measure what is waited for, and not the loop that waits.

A loop that is late, since it has much to do or gets no core, hears an answer late: time during which it heard nothing
says nothing about who should have answered. So the clock of these time-outs stands still while the loop does not turn.

`attention.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

from ssop_chassis.deadline import Deadline, running_loop

TICK_S: Final = 0.005
"""How often the loop is looked at while something is waited for."""
_MOST_CREDIT_S: Final = 1.5 * TICK_S
"""What one look adds to the clock at most; timers of the loop are exact to a millisecond."""
_LAST_LOOK_S: Final = 0.001
T = TypeVar("T")


def _ignore(_: float) -> None:
    pass


class Attention:
    """The clock of one loop, which runs only while something is waited for. `on_lag` is told the seconds it stood."""

    def __init__(self, on_lag: Callable[[float], None] = _ignore) -> None:
        self._on_lag = on_lag
        self.now_s = 0.0
        """Seconds for which the loop has turned while something was waited for."""
        self._looked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due_s: dict[Deadline | asyncio.Future[Any], float] = {}
        self._last_look: set[Deadline | asyncio.Future[Any]] = set()

    def timeout(self, delay_s: float) -> "AttentiveTimeout":
        """As `asyncio.timeout`, by this clock: TimeoutError after `delay_s` seconds in which the loop turned.

        On a loop that is not late that is `delay_s`, give or take two ticks. An answer that lies in a socket when the
        time is over is heard first.
        """
        return AttentiveTimeout(self, delay_s)

    async def wait(self, future: "asyncio.Future[T]", delay_s: float) -> T:
        """What a future gives, within `timeout`, for less: the future itself fails with the TimeoutError."""
        self.begin(future, delay_s)
        try:
            return await future
        finally:
            self.end(future)

    def end(self, timer: "Deadline | asyncio.Future[Any]") -> None:
        """Nothing is waited for under this time-out any more."""
        self._due_s.pop(timer, None)
        self._last_look.discard(timer)
        if not self._due_s and self._timer is not None:
            # A process that waits for nothing is not woken.
            self._timer.cancel()
            self._timer = None
            self._pass(running_loop())

    def begin(self, timer: "Deadline | asyncio.Future[Any]", delay_s: float) -> None:
        """Something is waited for from now on."""
        loop = running_loop()
        if self._timer is None:
            self._looked_s = loop.time()
            self._schedule(loop, min(TICK_S, delay_s))
        # Since the last look time has passed that this wait has nothing to do with.
        since_s = min(loop.time() - self._looked_s, _MOST_CREDIT_S)
        self._due_s[timer] = self.now_s + since_s + delay_s

    def _schedule(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        self._timer = loop.call_later(max(delay_s, _LAST_LOOK_S), self._look)

    def _pass(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the clock catch up."""
        passed_s = loop.time() - self._looked_s
        self._looked_s += passed_s
        credit_s = min(passed_s, _MOST_CREDIT_S)
        self.now_s += credit_s
        if passed_s > credit_s:
            self._on_lag(passed_s - credit_s)

    def _look(self) -> None:
        loop = running_loop()
        self._pass(loop)
        for timer in [timer for timer, due_s in self._due_s.items() if due_s <= self.now_s]:
            if timer in self._last_look:
                del self._due_s[timer]
                if isinstance(timer, Deadline):
                    timer.expire()
                elif not timer.done():
                    timer.set_exception(TimeoutError())
            else:
                self._last_look.add(timer)
        if not self._due_s:
            self._timer = None
            return
        next_s = min(self._due_s.values()) - self.now_s
        self._schedule(loop, min(TICK_S, next_s) if next_s > 0 else _LAST_LOOK_S)


class AttentiveTimeout:
    """See Attention.timeout. Use it in `async with`, once."""

    __slots__ = ("_attention", "_delay_s", "_timer")

    def __init__(self, attention: Attention, delay_s: float) -> None:
        self._attention = attention
        self._delay_s = delay_s
        self._timer = Deadline(None)

    async def __aenter__(self) -> None:
        self._timer.__enter__()
        self._attention.begin(self._timer, self._delay_s)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._attention.end(self._timer)
        self._timer.__exit__(kind, error, traceback)
