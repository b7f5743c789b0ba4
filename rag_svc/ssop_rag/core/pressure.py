"""Whether the machine has time to spare, told by work that was done on it. Pure; times are passed in, in milliseconds.

A thread that computes takes little longer than its CPU time where a core is free for it. Where it takes several times
as long, others wait for cores too, and what is optional makes them wait longer.
"""

from dataclasses import dataclass
from typing import Final

_SLACK_MS: Final = 5
_HOLD_MS: Final = 500
_MAX_HOLD_MS: Final = 8_000


@dataclass(slots=True)
class Pressure:
    """High for half a second after work that took more than `max_stretch` times its CPU time; 0: never.

    Twice as long each time in a row, up to eight seconds.
    """

    max_stretch: float
    _until_ms: int = 0
    _hold_ms: int = 0

    def is_high(self, now_ms: int) -> bool:
        """Whether nothing optional is to be done now."""
        return now_ms < self._until_ms

    def record(self, now_ms: int, *, wall_ms: float, cpu_ms: float) -> None:
        """Work ended."""
        if not self.max_stretch:
            return
        if wall_ms <= self.max_stretch * cpu_ms + _SLACK_MS:
            self._hold_ms = self._until_ms = 0
            return
        self._hold_ms = min(max(_HOLD_MS, 2 * self._hold_ms), _MAX_HOLD_MS)
        self._until_ms = now_ms + self._hold_ms
