"""Whether a tenant's prefetches save more than they cost. Pure: outcomes and time are passed in, in milliseconds.

`PipeRAG` and `RaLMSpec` stop speculating where it does not pay; so does this. Over the last `window` prefetches that
ended, the time that users did not wait is weighed against the work that was wasted. When it is less, prefetches are off
for `off_ms`, then `probe` of them are let through; if these save too little, they are off again, for twice as long each
time up to `max_off_ms`. Work on an idle thread is cheaper than a user's time, hence `waste_weight`.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class Mode(Enum):
    """Whether prefetches start."""

    ON = "on"
    OFF = "off"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class WorthLimits:
    """See the module. `least`: outcomes before the first judgement. `waste_weight` 0: never off."""

    window: int = 64
    least: int = 32
    probe: int = 16
    off_ms: int = 60_000
    max_off_ms: int = 900_000
    waste_weight: float = 0.25


@dataclass(slots=True)
class Worth:
    """One tenant's state. Off, ask `may_probe`; `start` each prefetch, and `record` when it ended, used or not."""

    limits: WorthLimits
    mode: Mode = Mode.ON
    _ended: deque[tuple[float, float]] = field(default_factory=deque)
    _off_until_ms: int = 0
    _off_ms: int = 0
    _probes_left: int = 0

    def may_probe(self, now_ms: int) -> bool:
        """Whether prefetches that are off, or probed, may start."""
        if self.mode is Mode.OFF and now_ms >= self._off_until_ms:
            self.mode = Mode.PROBE
            self._probes_left = self.limits.probe
            self._ended.clear()
        return self.mode is Mode.PROBE and self._probes_left > 0

    def start(self) -> None:
        """A prefetch starts."""
        if self.mode is Mode.PROBE:
            self._probes_left -= 1

    def probe_in_ms(self, now_ms: int) -> int:
        """Milliseconds until prefetches are tried again; 0 where they are not off."""
        return max(0, self._off_until_ms - now_ms) if self.mode is Mode.OFF else 0

    def record(self, now_ms: int, *, saved_ms: float, wasted_ms: float) -> Mode | None:
        """A prefetch ended: time it saved its request, and work that was for nothing. The mode, where it changed."""
        if self.mode is Mode.OFF or self.limits.waste_weight == 0:
            return None
        self._ended.append((saved_ms, wasted_ms))
        if len(self._ended) > self.limits.window:
            self._ended.popleft()
        if len(self._ended) < (self.limits.probe if self.mode is Mode.PROBE else self.limits.least):
            return None
        if self._is_worth():
            self._off_ms = 0
            return self._become(Mode.ON)
        self._off_ms = min(max(self.limits.off_ms, 2 * self._off_ms), self.limits.max_off_ms)
        self._off_until_ms = now_ms + self._off_ms
        return self._become(Mode.OFF)

    def _is_worth(self) -> bool:
        saved_ms = sum(saved for saved, _ in self._ended)
        wasted_ms = sum(wasted for _, wasted in self._ended)
        return saved_ms >= self.limits.waste_weight * wasted_ms

    def _become(self, mode: Mode) -> Mode | None:
        if self.mode is mode:
            return None
        self.mode = mode
        return mode
