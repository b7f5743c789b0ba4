# cython: annotation_typing=False
"""Outcomes of the last two minutes with their latencies: slots with logarithmic buckets. Pure.

A percentile is right within 2 % (DDSketch's bucketing, Masson et al., VLDB 2019), whatever was recorded. An outcome
leaves with its slot: it counts for the window's length, less what of its slot had passed.
"""

import math
from collections import deque
from typing import Final, NamedTuple

_ERROR: Final = 0.02
_GAMMA: Final = (1 + _ERROR) / (1 - _ERROR)
_LOG_GAMMA: Final = math.log(_GAMMA)
_SHORTEST_MS: Final = 1e-3
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


class _Slot:
    """What was recorded in one slot: outcomes by bucket, and how many of them were failures."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.buckets: dict[int, int] = {}
        self.failures = 0


class LatencyWindow:
    """Outcomes of the last `slots` times `slot_ms`. Times must not go back; one that does counts as the last one.

    A sum over the slots is kept, so that a look costs what has left since the look before.
    """

    def __init__(self, *, slots: int = 120, slot_ms: int = 1_000) -> None:
        self._slots = slots
        self._slot_ms = slot_ms
        self._kept: deque[_Slot] = deque()
        self._buckets: dict[int, int] = {}
        self._outcomes = self._failures = 0

    def record(self, latency_ms: float, is_failure: bool, now_ms: int) -> None:
        """An outcome, and how long it took."""
        number, bucket, kept = now_ms // self._slot_ms, _bucket(latency_ms), self._kept
        if not kept or kept[-1].number < number:
            self._expire(number)
            kept.append(_Slot(number))
        slot, buckets = kept[-1], self._buckets
        of_slot = slot.buckets
        of_slot[bucket] = of_slot.get(bucket, 0) + 1
        buckets[bucket] = buckets.get(bucket, 0) + 1
        self._outcomes += 1
        if is_failure:
            slot.failures += 1
            self._failures += 1

    def stats(self, now_ms: int) -> WindowStats:
        """What the window holds now."""
        self._expire(now_ms // self._slot_ms)
        return WindowStats(self._outcomes, self._failures, _percentile(self._buckets, self._outcomes, 0.95))

    def percentile(self, share: float, now_ms: int) -> float:
        """The latency in milliseconds that a `share` of the outcomes (above 0, at most 1) did not exceed; 0 of none."""
        self._expire(now_ms // self._slot_ms)
        return _percentile(self._buckets, self._outcomes, share)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._buckets.clear()
        self._outcomes = self._failures = 0

    def _expire(self, number: int) -> None:
        while self._kept and self._kept[0].number <= number - self._slots:
            slot = self._kept.popleft()
            self._failures -= slot.failures
            for bucket, count in slot.buckets.items():
                self._outcomes -= count
                self._buckets[bucket] -= count
                if not self._buckets[bucket]:
                    del self._buckets[bucket]


def _bucket(latency_ms: float) -> int:
    """Number of the bucket; what is no time counts as the longest."""
    if not latency_ms <= _LONGEST_MS:
        latency_ms = _LONGEST_MS
    elif latency_ms < _SHORTEST_MS:
        latency_ms = _SHORTEST_MS
    return int(math.ceil(math.log(latency_ms) / _LOG_GAMMA))  # noqa: RUF046 - that of C is none


def _percentile(buckets: dict[int, int], outcomes: int, share: float) -> float:
    """By nearest rank."""
    left = math.ceil(share * outcomes)
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return 2 * _GAMMA**bucket / (_GAMMA + 1)
    return 0.0
