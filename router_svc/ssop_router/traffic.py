"""The requests of the last minute in numbers, for people who watch a router."""

from collections.abc import Callable
from typing import Final

from ssop.v1.mesh_pb2 import CacheReason
from ssop.v1.router_pb2 import TrafficView
from ssop_router.core.counts import CountWindow
from ssop_router.core.latency import LatencyWindow
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.job import Job

_SLOTS: Final = 60
_SLOT_MS: Final = 1_000


class Traffic:
    """`clock_ms` is monotonic."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._outcomes = CountWindow[str](slots=_SLOTS, slot_ms=_SLOT_MS)
        self._cache = CountWindow[str](slots=_SLOTS, slot_ms=_SLOT_MS)
        self._degraded = CountWindow[int](slots=_SLOTS, slot_ms=_SLOT_MS)
        self._tiers = CountWindow[str](slots=_SLOTS, slot_ms=_SLOT_MS)
        self._first_field = LatencyWindow(slots=_SLOTS, slot_ms=_SLOT_MS)

    def record(self, job: Job, outcome: str) -> None:
        """A request has ended: `OK`, or the reason of its error."""
        now_ms = self._clock_ms()
        self._outcomes.add(outcome, now_ms)
        if job.cache_reason:
            self._cache.add(CacheReason.Name(job.cache_reason).removeprefix("CACHE_REASON_").lower(), now_ms)
        if job.degraded_level:
            self._degraded.add(job.degraded_level, now_ms)
        if job.first_field_ms:
            self._first_field.record(job.first_field_ms, is_failure=outcome != "OK", now_ms=now_ms)
            if job.target is not None:
                self._tiers.add(WORD_OF_TIER[job.target.tier], now_ms)

    def view(self) -> TrafficView:
        """What the window holds."""
        now_ms = self._clock_ms()
        return TrafficView(
            window_ms=_SLOTS * _SLOT_MS,
            outcomes=self._outcomes.totals(now_ms),
            cache=self._cache.totals(now_ms),
            degraded=self._degraded.totals(now_ms),
            tiers=self._tiers.totals(now_ms),
            first_field_p50_ms=self._first_field.percentile(0.5, now_ms),
            first_field_p95_ms=self._first_field.percentile(0.95, now_ms),
        )
