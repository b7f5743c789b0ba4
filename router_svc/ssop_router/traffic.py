# cython: annotation_typing=False
"""The requests of the last minute in numbers, for people who watch a router.

`traffic.pxd` gives the types with which this very file is compiled.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from ssop.v1.mesh_pb2 import CacheReason, Tier
from ssop.v1.router_pb2 import TrafficView
from ssop_router.core.counts import CountWindow
from ssop_router.core.latency import LatencyWindow
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.job import Job

_SLOTS: Final = 60
_SLOT_MS: Final = 1_000
_NO_TIER: Final = Tier.TIER_UNSPECIFIED


class Traffic:
    """`clock_ms` is monotonic."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._ended = CountWindow(slots=_SLOTS, slot_ms=_SLOT_MS)
        self._first_field = LatencyWindow(slots=_SLOTS, slot_ms=_SLOT_MS)

    def record(self, job: Job, outcome: str) -> None:
        """A request has ended: `OK`, or the reason of its error."""
        now_ms = self._clock_ms()
        tier = _NO_TIER
        if first_field_ms := job.first_field_ms:
            self._first_field.record(first_field_ms, outcome != "OK", now_ms)
            if (target := job.target) is not None:
                tier = target.tier
        self._ended.add((outcome, job.cache_reason, job.degraded_level, tier), now_ms)

    def view(self) -> TrafficView:
        """What the window holds."""
        now_ms = self._clock_ms()
        outcomes, cache, tiers = Counter[str](), Counter[str](), Counter[str]()
        degraded = Counter[int]()
        for (outcome, reason, level, tier), count in self._ended.totals(now_ms).items():
            outcomes[outcome] += count
            if reason:
                cache[CacheReason.Name(reason).removeprefix("CACHE_REASON_").lower()] += count
            if level:
                degraded[level] += count
            if tier:
                tiers[WORD_OF_TIER[tier]] += count
        return TrafficView(
            window_ms=_SLOTS * _SLOT_MS,
            outcomes=outcomes,
            cache=cache,
            degraded=degraded,
            tiers=tiers,
            first_field_p50_ms=self._first_field.percentile(0.5, now_ms),
            first_field_p95_ms=self._first_field.percentile(0.95, now_ms),
        )
