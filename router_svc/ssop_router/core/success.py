# cython: annotation_typing=False
"""How attempts at nodes ended of late: counts that fade, and windows of fixed length. Pure: time is passed in.

The fading counts say how likely the next attempt succeeds, with an uncertainty that grows back as they fade. The
windows say whether a failure rate has lasted.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop_router.core.tuples import make

R = ErrorReason
# Before anything is known a node is taken to work; so much evidence outweighs that belief.
PRIOR_SUCCESSES: Final = 9.0
PRIOR_FAILURES: Final = 0.5
FADED: Final = 0.05
_KEPT_WINDOWS: Final = 12


class Outcome(StrEnum):
    """How an attempt ended, as far as it says something about the node."""

    SUCCESS = "success"
    FAILURE = "failure"
    BUSY = "busy"
    """The node turned the attempt away because it is full: it is well, and counts as neither."""
    NEUTRAL = "neutral"
    """The caller went away, or asked for what no node would do."""


# Looking a member up in its enum costs as much as counting it.
_SUCCESS: Final = Outcome.SUCCESS
_FAILURE: Final = Outcome.FAILURE
_BUSY: Final = frozenset({R.ERROR_REASON_OVERLOADED, R.ERROR_REASON_RATE_LIMITED})
_FAILED: Final = frozenset({R.ERROR_REASON_BACKEND_FAILED, R.ERROR_REASON_BACKEND_NOT_READY, R.ERROR_REASON_INTERNAL})


def judge(reason: ErrorReason.ValueType) -> Outcome:
    """What an error of an attempt says about its node. What is not plainly the node's fault is neutral."""
    if reason in _FAILED:
        return Outcome.FAILURE
    return Outcome.BUSY if reason in _BUSY else Outcome.NEUTRAL


class Estimate(NamedTuple):
    """The probability that an attempt succeeds, give or take `spread` (one standard deviation)."""

    value: float
    spread: float

    @property
    def hopeful(self) -> float:
        """The upper end of what is likely: who has shown little is not blamed for it."""
        return min(1.0, self.value + self.spread)


def _estimate(good: float, bad: float) -> Estimate:
    total = good + bad
    return Estimate(good / total, math.sqrt(good * bad / (total * total * (total + 1))))


_BELIEF: Final = _estimate(PRIOR_SUCCESSES, PRIOR_FAILURES)


class SuccessView(NamedTuple):
    """Faded counts as they were at `at_ms`, the time of the last outcome; None before the first one."""

    successes: float = 0.0
    failures: float = 0.0
    at_ms: int | None = None
    half_life_ms: int = 30_000

    def estimate(self, now_ms: int) -> Estimate:
        """Mean and standard deviation of a beta distribution over what is left of the counts."""
        successes, failures, at_ms, half_life_ms = self
        if at_ms is None:
            return _BELIEF
        left = _fade(now_ms - at_ms, half_life_ms)
        return _estimate(successes * left + PRIOR_SUCCESSES, failures * left + PRIOR_FAILURES)

    def risk(self, now_ms: int) -> float:
        """Attempts beyond the first that a success is likely to cost, seen hopefully; 0 where nothing failed."""
        if self.failures < FADED or self.at_ms is None:
            return 0.0
        return 1 / self.estimate(now_ms).hopeful - 1

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the last outcome; None before the first one."""
        return None if self.at_ms is None else max(0, now_ms - self.at_ms)


NO_OUTCOMES: Final = SuccessView()


def _fade(age_ms: int, half_life_ms: int) -> float:
    return math.exp2(-max(0, age_ms) / half_life_ms)


class Window(NamedTuple):
    """Outcomes of one window; `number` is its start in windows since 0."""

    number: int
    outcomes: int
    failures: int


class Outcomes:
    """Takes outcomes in the order of time. Owned by one loop; holds at most 12 windows."""

    def __init__(self, *, half_life_ms: int, window_ms: int) -> None:
        self._half_life_ms = half_life_ms
        self._window_ms = window_ms
        self._successes = 0.0
        self._failures = 0.0
        self._at_ms: int | None = None
        self._view: SuccessView | None = None
        self._windows: deque[Window] = deque(maxlen=_KEPT_WINDOWS - 1)
        # The newest window, while it fills.
        self._number = 0
        self._in_window = self._failed_in_window = 0

    def record(self, outcome: Outcome, now_ms: int) -> None:
        """An attempt has ended. Neutral and busy ones leave no mark."""
        is_failure = outcome is _FAILURE
        if not is_failure and outcome is not _SUCCESS:
            return
        self._view = None
        if self._at_ms != now_ms:
            left = 0.0 if self._at_ms is None else _fade(now_ms - self._at_ms, self._half_life_ms)
            self._successes *= left
            self._failures *= left
            self._at_ms = now_ms
        number = now_ms // self._window_ms
        if number != self._number:
            self._windows.extend(self._filling())
            self._number = number
            self._in_window = self._failed_in_window = 0
        self._in_window += 1
        if is_failure:
            self._failures += 1
            self._failed_in_window += 1
        else:
            self._successes += 1

    def forget(self) -> None:
        """What was, says nothing any more."""
        self._successes = self._failures = 0.0
        self._at_ms = self._view = None

    def view(self) -> SuccessView:
        """What decisions read; the same object until the next outcome."""
        if self._view is None:
            self._view = make(SuccessView, (self._successes, self._failures, self._at_ms, self._half_life_ms))
        return self._view

    def windows(self) -> tuple[Window, ...]:
        """The last windows that had outcomes, oldest first; the newest may still fill."""
        return (*self._windows, *self._filling())

    def _filling(self) -> tuple[Window, ...]:
        return (Window(self._number, self._in_window, self._failed_in_window),) if self._in_window else ()


@dataclass(frozen=True, slots=True)
class CacheRule:
    """When too much fails: so many windows in a row, each with enough outcomes and too many failures."""

    windows: int = 3
    window_ms: int = 10_000
    min_outcomes: int = 20
    max_failure_ratio: float = 0.15

    def applies(self, windows: Sequence[Window], now_ms: int) -> bool:
        """Whether the last complete windows before `now_ms` all failed too much."""
        current = now_ms // self.window_ms
        failing = {
            window.number
            for window in windows
            if window.outcomes >= self.min_outcomes and window.failures > self.max_failure_ratio * window.outcomes
        }
        return self.windows > 0 and all(current - back in failing for back in range(1, self.windows + 1))
