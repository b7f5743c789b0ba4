"""Outcomes of the last two minutes with their latencies: a ring of slots with logarithmic buckets. Pure.

A percentile is right within 2 % (DDSketch's bucketing, Masson et al., VLDB 2019), whatever was recorded. An outcome
leaves with its slot: it counts for the window's length, less what of its slot had passed.
"""

import math
from collections import Counter
from typing import Final, NamedTuple

_ERROR: Final = 0.02
_GAMMA: Final = (1 + _ERROR) / (1 - _ERROR)
_LOG_GAMMA: Final = math.log(_GAMMA)
_LONGEST_MS: Final = 86_400_000.0


class WindowStats(NamedTuple):
    """What a window holds. `p95_ms` is 0 while it holds nothing."""

    outcomes: int
    failures: int
    p95_ms: float

    @property
    def failure_ratio(self) -> float:
        """Share of failures; 0 of nothing."""
        return self.failures / self.outcomes if self.outcomes else 0.0


class LatencyWindow:
    """Outcomes of the last `slots` times `slot_ms`. Times must not go back further than one slot."""

    def __init__(self, *, slots: int = 120, slot_ms: int = 1_000) -> None:
        self._slot_ms = slot_ms
        self._numbers = [-1] * slots
        self._buckets: list[Counter[int]] = [Counter() for _ in range(slots)]
        self._failures = [0] * slots

    def record(self, latency_ms: float, *, is_failure: bool, now_ms: int) -> None:
        """An outcome, and how long it took."""
        index = self._turn(now_ms)
        self._buckets[index][_bucket(latency_ms)] += 1
        self._failures[index] += is_failure

    def stats(self, now_ms: int) -> WindowStats:
        """What the window holds now."""
        first = now_ms // self._slot_ms - len(self._numbers)
        total: Counter[int] = Counter()
        failures = 0
        for number, buckets, failed in zip(self._numbers, self._buckets, self._failures, strict=True):
            if number > first:
                total.update(buckets)
                failures += failed
        outcomes = total.total()
        return WindowStats(outcomes, failures, _percentile(total, outcomes))

    def clear(self) -> None:
        """Forget everything."""
        self._numbers = [-1] * len(self._numbers)

    def _turn(self, now_ms: int) -> int:
        number = now_ms // self._slot_ms
        index = number % len(self._numbers)
        if self._numbers[index] != number:
            self._numbers[index] = number
            self._buckets[index] = Counter()
            self._failures[index] = 0
        return index


def _bucket(latency_ms: float) -> int:
    """Number of the bucket; what is no time counts as the longest."""
    if not latency_ms <= _LONGEST_MS:
        latency_ms = _LONGEST_MS
    return math.ceil(math.log(max(latency_ms, 1e-3)) / _LOG_GAMMA)


def _percentile(buckets: Counter[int], outcomes: int) -> float:
    """The 95th, by nearest rank."""
    left = math.ceil(0.95 * outcomes)
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return 2 * math.pow(_GAMMA, bucket) / (_GAMMA + 1)
    return 0.0
