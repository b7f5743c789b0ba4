# cython: annotation_typing=False
"""Time-outs that cost next to nothing where they do not run out: those of a loop share one of its timers.

Most of them never do, and a timer of the loop for each costs more than all else that they need. After the timing wheel
of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), with one level.

`deadline.pxd` gives the types with which this very file is compiled, where there is a compiler; build it again
(`make ext`) after a change.
"""

import asyncio
import sys
from math import inf
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Any, Final, Self

COARSE_S: Final = 1.0
"""What ends sooner than this has a timer of its own."""
SLOT_S: Final = 1 / 16
"""What ends later has one for so long at most, at its end; few live to need it."""
# The same as numbers of C, where this is compiled.
_COARSE_S: Final = COARSE_S
_SLOT_S: Final = SLOT_S
_MOST_S: Final = 1e6
_ROUNDING_S: Final = 0.001
# Where `asyncio.current_task` looks, which is in Python before 3.12.
_TASKS: Final = getattr(asyncio.tasks, "_current_tasks", None) if sys.version_info < (3, 12) else None
_YIELD_S: Final = 0.005
"""What a deadline leaves to a cancel that came before it: one that is swallowed must not keep it from ringing."""


class _Wheel:
    """The alarms of one loop, by the sixteenth of a second in which they are over."""

    __slots__ = ("_looks_at", "_slots", "_timer", "loop", "now_s", "thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now_s = loop.time
        self.thread = get_ident()
        self._slots: dict[int, set[Alarm]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0

    def take(self, at_s: float, alarm: "Alarm") -> "set[Alarm]":
        """Wake it when its slot begins; what is returned has the alarm until then."""
        slot = int((at_s - _ROUNDING_S) // _SLOT_S)
        alarms = self._slots.get(slot)
        if alarms is None:
            alarms = self._slots[slot] = set()
            if self._timer is None or slot < self._looks_at:
                self._look_at(slot)
        alarms.add(alarm)
        return alarms

    def drop(self, at_s: float) -> None:
        """Forget the slot of that time, which is empty: a set that held many keeps their room until it is gone."""
        slot = int((at_s - _ROUNDING_S) // _SLOT_S)
        self._slots.pop(slot, None)

    def _look_at(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = slot
        self._timer = self.loop.call_at(slot * _SLOT_S + _ROUNDING_S, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = self.now_s()
        passed = int(now_s // _SLOT_S)
        due = [alarm for slot, alarms in self._slots.items() if slot <= passed for alarm in alarms]
        self._slots = {slot: alarms for slot, alarms in self._slots.items() if slot > passed}
        if self._slots:
            self._look_at(min(self._slots))
        # A loop that is late has several: a deadline within another is over first.
        due.sort(key=_time_of)
        for alarm in due:
            alarm.come(self.loop)


def _time_of(alarm: "Alarm") -> float:
    return alarm.at_s


_latest: _Wheel | None = None


def _wheel() -> _Wheel:
    """That of the running loop. A loop that takes turns with others has several."""
    global _latest  # noqa: PLW0603 - of the process: nearly all have one loop
    wheel = _latest
    # A thread runs one loop at a time. To ask asyncio for it costs a system call before Python 3.12.
    if wheel is None or wheel.thread != get_ident() or not wheel.loop.is_running():
        wheel = _latest = _Wheel(asyncio.get_running_loop())
    return wheel


def running_loop() -> asyncio.AbstractEventLoop:
    """As `asyncio.get_running_loop`, for less."""
    wheel = _latest
    if wheel is not None and wheel.thread == get_ident() and wheel.loop.is_running():
        return wheel.loop
    return _wheel().loop


def monotonic_ms() -> int:
    """Milliseconds of the clock that never goes back."""
    now_ns = monotonic_ns()
    return now_ns // 1_000_000


class Alarm:
    """Calls `ring` once its time is over; set again, at the new time alone. Belongs to the running loop."""

    __slots__ = ("_alarms", "_handle", "_wheel", "at_s", "loop")

    def __init__(self) -> None:
        self._set_in()

    def _set_in(self) -> None:
        self._wheel = wheel = _wheel()
        self.loop = wheel.loop
        self.at_s = 0.0
        """When it rings, by the clock of the loop."""
        self._alarms: set[Alarm] | None = None
        self._handle: asyncio.Handle | None = None

    def start(self, delay_s: float) -> None:
        """Ring after so many seconds."""
        self._start_at(self._wheel.now_s(), delay_s)

    def _start_at(self, now_s: float, delay_s: float) -> None:
        if self._alarms is not None or self._handle is not None:
            self.stop()
        self.at_s = at_s = now_s + min(delay_s, _MOST_S)
        if delay_s < _COARSE_S:
            self._handle = self.loop.call_later(delay_s, self._ring) if delay_s > 0 else self.loop.call_soon(self._ring)
        else:
            self._alarms = self._wheel.take(at_s, self)

    def stop(self) -> None:
        """Don't ring."""
        if self._alarms is not None:
            self._alarms.discard(self)
            if not self._alarms:
                self._wheel.drop(self.at_s)
            self._alarms = None
        elif self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def come(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ring when it is due, in a turn where one that fails fails alone; until then it can be stopped."""
        self._alarms = None
        left_s = self.at_s - self._wheel.now_s()
        self._handle = loop.call_later(left_s, self._ring) if left_s > 0 else loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._handle = None
        self.ring()

    def ring(self) -> None:
        """The time is over."""
        raise NotImplementedError


class Deadline(Alarm):
    """As `asyncio.timeout`, for less, and in a plain `with`: TimeoutError once the time that was set last is over.

    The time may be moved with every chunk of a stream: what was set later is seen when the alarm rings. None: there is
    no end. Use it once.

    Of several within each other that a late loop finds over at once the innermost ends first, and says why; asyncio's
    leave that to the outermost.
    """

    __slots__ = ("_cancelling", "_due_s", "_first_s", "_has_yielded", "_is_over", "_rings_s", "_task")

    def __init__(self, delay_s: float | None) -> None:
        self._set_in()
        self._first_s = delay_s
        self._due_s = inf
        self._rings_s = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._is_over = False
        self._has_yielded = False
        self._cancelling = 0

    def __enter__(self) -> Self:
        task = asyncio.current_task(self.loop) if _TASKS is None else _TASKS.get(self.loop)
        if task is None:
            raise RuntimeError("a deadline is for a task")
        self._task = task
        self._cancelling = task.cancelling()
        if (delay_s := self._first_s) is not None:
            now_s = self._wheel.now_s()
            self._due_s = self._rings_s = now_s + delay_s
            self._start_at(now_s, delay_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        task, self._task = self._task, None
        is_ours = self._is_over and task is not None and task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def is_endless(self) -> bool:
        """It is waited for, and no time is set."""
        return self._task is not None and self._due_s == inf

    def set(self, delay_s: float | None) -> None:
        """Wait so many seconds from now; None: without an end."""
        if delay_s is None:
            self._due_s = inf
            return
        now_s = self._wheel.now_s()
        due_s = self._due_s = now_s + delay_s
        if due_s >= self._rings_s and (self._alarms is not None or self._handle is not None):
            return
        if self._task is not None and not self._is_over:
            self._rings_s = due_s
            self._start_at(now_s, delay_s)

    def expire(self) -> None:
        """The time is over now."""
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()

    def ring(self) -> None:
        """See Alarm.ring."""
        due_s = self._due_s
        if due_s == inf:
            return
        now_s = self._wheel.now_s()
        left_s = due_s - now_s
        if left_s > 0:
            self._rings_s = due_s
            self._start_at(now_s, left_s)
        elif self._has_yielded or self._task is None or self._task.cancelling() <= self._cancelling:
            self.expire()
        else:
            self._has_yielded = True
            self.start(_YIELD_S)
