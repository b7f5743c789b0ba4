# cython: annotation_typing=False
"""How much of the full rate of requests the nodes can bear, from how long requests wait for their first field. Pure.

A proportional-integral controller of the queueing delay (PIE, RFC 8033, section 4.2), here on the logarithm of a share
of the full rate. The delay comes from Little's law, as there: those that wait now, divided by the rate at which first
fields come; the length of answers is nowhere in it. Times are in milliseconds, of a monotonic clock that is passed in.
"""

import math
from collections import deque
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Final

# Fewer first fields in a window say too little about their rate.
_FEW: Final = 4
_MOST_SAMPLES: Final = 8_192
_LARGEST_EXCESS: Final = 3.0
# First fields by which their rate is judged: where they are many, it follows in less than the window.
_ENOUGH: Final = 64
# The longest time that one look at the load can speak for.
_LONGEST_STEP_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """`target_ms` is the wait for a first field at which the share neither grows nor shrinks.

    `integral` is by how much its logarithm changes in a second for each target's worth of excess, `proportional` by how
    much it is lowered at once. `smallest` is the least share.
    """

    target_ms: int = 1_500
    interval_ms: int = 250
    window_ms: int = 5_000
    integral: float = 0.04
    proportional: float = 0.5
    smoothing: float = 0.25
    smallest: float = 0.01


class Throttle:
    """The share of the full rate, from `smallest` to 1. Owned by the event loop of its process."""

    def __init__(self, settings: ThrottleSettings, now_ms: int) -> None:
        self._settings = settings
        self._smallest = settings.smallest
        self._waiting: dict[int, int] = {}
        self._numbers = count()
        self._fields: deque[tuple[int, int]] = deque(maxlen=_MOST_SAMPLES)
        self._refusals: deque[int] = deque(maxlen=_MOST_SAMPLES)
        self._load = 0.0
        self._integral = 0.0
        self._share = 1.0
        self._stepped_ms = now_ms
        self._interval_ms = settings.interval_ms

    @property
    def load(self) -> float:
        """The wait for a first field, in targets; above 1 is too long."""
        return self._load

    def set_smallest(self, share: float) -> None:
        """The least share from now on, above 0 and at most 1."""
        self._smallest = min(1.0, max(self._settings.smallest, share))

    def begin(self, now_ms: int) -> int:
        """A request begins to wait for its first field; returns its number."""
        number = next(self._numbers)
        self._waiting[number] = now_ms
        self._step(now_ms)
        return number

    def end(self, number: int, now_ms: int, is_refused: bool = False) -> None:
        """It waits no more: its first field came, or a full node turned it away. A second end says nothing."""
        began_ms = self._waiting.pop(number, None)
        if began_ms is None:
            return
        if is_refused:
            self._refusals.append(now_ms)
        else:
            self._fields.append((now_ms, max(0, now_ms - began_ms)))
        self._step(now_ms)

    def drop(self, number: int) -> None:
        """It waits no more, for a reason that says nothing about load."""
        self._waiting.pop(number, None)

    def share(self, now_ms: int) -> float:
        """The share of the full rate that the nodes can bear now."""
        self._step(now_ms)
        return self._share

    def _step(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._stepped_ms
        if elapsed_ms < self._interval_ms:
            return
        self._stepped_ms = now_ms
        measured = self._measure(now_ms)
        if measured is None:
            # Nobody waits, so that the whole gap was quiet.
            self._load = 0.0
        else:
            elapsed_ms = min(elapsed_ms, _LONGEST_STEP_MS)
            self._load += self._settings.smoothing * (min(measured, 1 + 2 * _LARGEST_EXCESS) - self._load)
        excess = min(_LARGEST_EXCESS, self._load - 1)
        least = math.log(self._smallest)
        moved = self._integral - self._settings.integral * excess * elapsed_ms / 1000
        self._integral = min(0.0, max(least, moved))
        self._share = math.exp(min(0.0, max(least, self._integral - self._settings.proportional * excess)))

    def _measure(self, now_ms: int) -> float | None:
        """The wait in targets; None where nothing says that anybody waits."""
        settings = self._settings
        first_ms = now_ms - settings.window_ms
        while self._fields and self._fields[0][0] <= first_ms:
            self._fields.popleft()
        while self._refusals and self._refusals[0] <= first_ms:
            self._refusals.popleft()
        fields, refusals = len(self._fields), len(self._refusals)
        if fields >= _FEW:
            counted = min(fields, _ENOUGH)
            took_ms = (
                settings.window_ms
                if fields < _ENOUGH
                else max(settings.interval_ms, now_ms - self._fields[-counted][0])
            )
            delay_ms = len(self._waiting) * took_ms / counted
        else:
            # One that waits speaks only once it has waited too long: before that it may be about to be served.
            ages = [now_ms - began_ms for began_ms in self._waiting.values()]
            waits = [wait_ms for _, wait_ms in self._fields] + [age for age in ages if age > settings.target_ms]
            if not waits and not refusals:
                return None
            delay_ms = median(waits) if waits else 0.0
        # Half of all attempts turned away counts as much as a wait at the target; one full node of many does not.
        refused = 2 * refusals / (refusals + fields) if refusals else 0.0
        return max(delay_ms / settings.target_ms, refused)
