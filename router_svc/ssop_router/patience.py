"""How long a node may be silent: a time-out whose end is moved with every chunk, and costs no timer to move."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class Patience:
    """Use it in `async with`, as `asyncio.timeout`: TimeoutError when the time that was set last is over.

    One timer of the loop looks from time to time how long it still is.
    """

    __slots__ = ("_due_s", "_first_s", "_looks_at_s", "_loop", "_timer", "_watch")

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Timeout | None = None
        self._due_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._looks_at_s = 0.0

    async def __aenter__(self) -> Self:
        timer = asyncio.timeout(None)
        await timer.__aenter__()
        self._timer = timer
        self.set(self._first_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        timer, self._timer = self._timer, None
        if timer is not None:
            await timer.__aexit__(kind, error, traceback)

    @property
    def is_endless(self) -> bool:
        """It is waited for, and no time is set."""
        return self._timer is not None and self._due_s is None

    def set(self, delay_s: float | None) -> None:
        """Wait so many seconds from now; None: without an end."""
        if delay_s is None:
            self._due_s = None
            return
        due_s = self._due_s = self._loop.time() + delay_s
        if self._timer is not None and (self._watch is None or due_s < self._looks_at_s):
            self._look_at(due_s)

    def _look_at(self, when_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._looks_at_s = when_s
        self._watch = self._loop.call_at(when_s, self._look)

    def _look(self) -> None:
        self._watch = None
        due_s, timer = self._due_s, self._timer
        if due_s is None or timer is None:
            return
        now_s = self._loop.time()
        if now_s < due_s:
            self._look_at(due_s)
            return
        # One that runs out at this very moment can't be set any more, and says so to the task that waits for it.
        with suppress(RuntimeError):
            timer.reschedule(now_s)
