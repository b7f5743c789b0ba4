# cython: annotation_typing=False
"""How many requests a node takes at once, learnt from those that it turns away (AIMD, Chiu and Jain, 1989). Pure.

`concurrency.pxd` gives the types with which this very file is compiled.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConcurrencySettings:
    """`decrease` is what a refusal leaves of the window; a window that is full and serves grows by `increase`."""

    smallest: float = 1.0
    largest: float = 1_024.0
    decrease: float = 0.5
    increase: float = 1.0
    # One refusal shrinks the window; the others of the same crowd say the same thing.
    hold_ms: int = 100
    # Without a word for so long it doubles: a node that was full a while ago need not be so now.
    recover_ms: int = 500


class Window:
    """A node's concurrency window, in requests. A refusal (429, 503) shrinks it and says nothing about health."""

    def __init__(self, settings: ConcurrencySettings) -> None:
        self._settings = settings
        self._limit = settings.largest
        self._changed_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """It has its largest size."""
        return self._limit >= self._settings.largest

    def limit(self, now_ms: int) -> int:
        """Requests that may run at once."""
        self._recover(now_ms)
        return math.floor(self._limit)

    def refuse(self, in_flight: int, now_ms: int) -> None:
        """The node turned a request away while `in_flight` ran on it, that one included."""
        self._recover(now_ms)
        settings = self._settings
        if self._changed_ms is not None and now_ms - self._changed_ms < settings.hold_ms and self._limit <= in_flight:
            return
        self._limit = max(settings.smallest, min(self._limit, float(in_flight)) * settings.decrease)
        self._changed_ms = now_ms

    def serve(self, in_flight: int, now_ms: int) -> None:
        """The node served a request while `in_flight` ran on it, that one included."""
        self._recover(now_ms)
        if self._limit < self._settings.largest and 2 * in_flight >= self._limit:
            self._limit = min(self._settings.largest, self._limit + self._settings.increase)

    def _recover(self, now_ms: int) -> None:
        if self._changed_ms is None or self._limit >= self._settings.largest:
            return
        periods = (now_ms - self._changed_ms) // self._settings.recover_ms
        if periods > 0:
            self._limit = min(self._settings.largest, self._limit * 2.0 ** min(periods, 64))
            self._changed_ms += periods * self._settings.recover_ms
