# cython: annotation_typing=False
"""How long a silence says that somebody is gone, by how long answers have taken. Pure; times in seconds.

A server that answers within milliseconds and is silent for 50 is gone; one whose disk takes 60 to sync is not. As with
the retransmission time-out of TCP (RFC 6298) the bound follows what was measured, here the slowest answers of late.

`pace.pxd` gives the types with which this very file is compiled.
"""

import math
from typing import Final

SLOWER: Final = 4.0
"""An answer that takes so many times longer than the slowest of late does not come any more."""
MOST_TIMES: Final = 20.0
"""The bound is at most so many times the one that is configured."""
HALF_LIFE_S: Final = 30.0
"""After so long a slow answer counts for half of its time."""


class Pace:
    """The bound is never below `floor_s`, and is that while answers take less than a quarter of it."""

    __slots__ = ("_at_s", "_slowest_s", "floor_s")

    def __init__(self, floor_s: float) -> None:
        self.floor_s = floor_s
        self._slowest_s = 0.0
        self._at_s = 0.0

    @property
    def most_s(self) -> float:
        """What the bound never exceeds."""
        return MOST_TIMES * self.floor_s

    def observe(self, took_s: float, now_s: float) -> None:
        """An answer came after `took_s`; so did one that was given up and came, or would have come, in the end."""
        self._slowest_s = max(took_s, self._slowest(now_s))
        self._at_s = now_s

    def back_off(self, bound_s: float, now_s: float) -> None:
        """Nothing came within the bound: the next one is twice as long, since this one may have been too short."""
        self.observe(2 * bound_s / SLOWER, now_s)

    def bound_s(self, now_s: float) -> float:
        """Silence that says that nobody answers."""
        return min(self.most_s, max(self.floor_s, SLOWER * self._slowest(now_s)))

    def _slowest(self, now_s: float) -> float:
        # A power for each call is dearer than the rest; below that nothing follows from it.
        if self._slowest_s * SLOWER <= self.floor_s:
            return self._slowest_s
        return self._slowest_s * math.pow(2.0, -max(0.0, now_s - self._at_s) / HALF_LIFE_S)
