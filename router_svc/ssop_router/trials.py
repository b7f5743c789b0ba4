# cython: annotation_typing=False
"""Models on trial beside those that they may replace: how answers ended and how fast they began, over ten minutes.

`trials.pxd` gives the types with which this very file is compiled.
"""

from collections.abc import Callable
from typing import Final

from ssop.v1.frame_pb2 import Verdict
from ssop.v1.mesh_pb2 import Tier
from ssop.v1.router_pb2 import TrialArm, TrialView
from ssop_router.core.canary import Canary
from ssop_router.core.counts import CountWindow
from ssop_router.core.latency import LatencyWindow
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.profiles import Regimes

STABLE: Final = "stable"
CANARY: Final = "canary"
SHADOW: Final = "shadow"
OK: Final = "ok"
_SLOTS: Final = 60
_SLOT_MS: Final = 10_000


class _Arm:
    def __init__(self) -> None:
        self.verdicts = CountWindow(slots=_SLOTS, slot_ms=_SLOT_MS)
        self.first_field = LatencyWindow(slots=_SLOTS, slot_ms=_SLOT_MS)


class Trials:
    """What each arm of each trial did. `clock_ms` is monotonic."""

    def __init__(self, regimes: Regimes, metrics: RouterMetrics, clock_ms: Callable[[], int]) -> None:
        self._regimes = regimes
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._arms: dict[tuple[Tier.ValueType, str, str], _Arm] = {}

    def find(self, tier: Tier.ValueType) -> Canary | None:
        """The canary of a tier, as the settings have it now."""
        for canary in self._regimes.now().decision.canaries:
            if canary.tier == tier:
                return canary
        return None

    def end(self, job: Job) -> None:
        """A request has ended; those that a node of a tier on trial answered count."""
        target = job.target
        if target is None or target.degraded_level or (canary := self.find(target.tier)) is None:
            return
        if not job.ending.has_ended and not job.failed and not job.is_interrupted:
            return  # the caller went away, or a stored answer was replayed
        verdict = name_verdict(job.ending.verdict) if job.ending.has_ended else "failed"
        arm = CANARY if target.candidate.is_canary else STABLE
        self.record(canary, arm, verdict, job.first_field_ms)

    def record(self, canary: Canary, arm: str, verdict: str, first_field_ms: float) -> None:
        """An answer of an arm: `ok`, `invalid`, `incomplete`, `failed`; `shed`: there was no room for a copy."""
        now_ms = self._clock_ms()
        found = self._arms.setdefault((canary.tier, canary.model, arm), _Arm())
        found.verdicts.add(verdict, now_ms)
        if first_field_ms:
            found.first_field.record(first_field_ms, is_failure=verdict != OK, now_ms=now_ms)
        self._metrics.trials.labels(Tier.Name(canary.tier), canary.model, arm, verdict).inc()

    def view(self) -> list[TrialView]:
        """The trials of the settings, with what their arms did."""
        return [
            TrialView(
                tier=canary.tier,
                model=canary.model,
                share=canary.share,
                shadow=canary.shadow,
                window_ms=_SLOTS * _SLOT_MS,
                arms=[self._view(canary, arm) for arm in (STABLE, CANARY, SHADOW)],
            )
            for canary in self._regimes.now().decision.canaries
        ]

    def _view(self, canary: Canary, arm: str) -> TrialArm:
        now_ms = self._clock_ms()
        found = self._arms.get((canary.tier, canary.model, arm)) or _Arm()
        return TrialArm(
            arm=arm,
            verdicts=found.verdicts.totals(now_ms),
            first_field_p50_ms=found.first_field.percentile(0.5, now_ms),
            first_field_p95_ms=found.first_field.percentile(0.95, now_ms),
        )


def name_verdict(verdict: Verdict.ValueType) -> str:
    """`ok`, `invalid` or `incomplete`."""
    return Verdict.Name(verdict).removeprefix("VERDICT_").lower()
