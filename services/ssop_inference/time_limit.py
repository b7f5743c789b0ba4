"""`asyncio.timeout_at` without its coroutines and states: an answer has one, and does not wait to enter it."""

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """A context of one task, entered once: raises TimeoutError where the body still runs at `when_s` of `loop.time()`.

    As with `asyncio.timeout_at` the body is cancelled, and a cancel that came from elsewhere passes through.
    """

    __slots__ = ("_cancels", "_is_late", "_loop", "_task", "_timer", "_when_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, when_s: float) -> None:
        self._loop = loop
        self._when_s = when_s
        self._is_late = False
        self._cancels = 0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("a time limit is for tasks")
        self._task = task
        self._cancels = task.cancelling()
        self._timer = self._loop.call_at(self._when_s, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        is_own = self._is_late and task is not None and task.uncancel() <= self._cancels
        if is_own and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        if self._task is not None:
            self._is_late = True
            self._task.cancel()
