"""Table `health` of section `router`: when nodes leave the rotation, and how they come back."""

from pydantic import Field

from ssop_chassis.settings import Settings
from ssop_router.core.breaker import BreakerSettings
from ssop_router.core.concurrency import ConcurrencySettings
from ssop_router.core.pool import PoolSettings


class HealthTable(Settings):
    """The rules of ejection. What is not here is fixed (`docs/resilience.md`)."""

    slow_p95_ms: float = Field(1_500, gt=0, description="Slow: time to the first field above this for one in twenty,")
    slow_failure_ratio: float = Field(0.05, ge=0, le=1, description="and more failures than this part,")
    slow_min_outcomes: int = Field(100, ge=1, description="of at least so many outcomes in two minutes,")
    slow_hold_ms: int = Field(120_000, ge=0, description="for so long without a break.")
    consecutive_failures: int = Field(5, ge=1, description="Hard failures in a row that eject.")
    burst_min_outcomes: int = Field(20, ge=1, description="Of at least so many outcomes in ten seconds,")
    burst_failure_ratio: float = Field(0.5, ge=0, le=1, description="more failures than this part eject.")
    probe_ms: int = Field(1_000, ge=100, description="How often a node that is out is tried.")
    good_probes: int = Field(3, ge=1, description="Good tries in a row that bring it back.")
    slow_start_ms: int = Field(60_000, ge=0, description="How long its share of the load then grows.")
    backoff_min_ms: int = Field(30_000, ge=0, description="How long a relapse is not tried, doubling each time,")
    backoff_max_ms: int = Field(300_000, ge=0, description="up to this.")
    max_ejected_ratio: float = Field(0.5, ge=0, le=1, description="Part of a tier that may be out at once.")
    may_lose_last: bool = Field(True, description="The only node of the full tier may go where a lite node is in.")
    hint_poll_ms: int = Field(
        1_000, ge=0, description="How often routers exchange what they took out, at the cache service. 0: never."
    )
    hint_max_age_ms: int = Field(10_000, ge=0, description="Hints of other routers count for so long.")
    hinted_failures: int = Field(2, ge=1, description="Hard failures in a row that eject a node with such a hint.")
    largest_window: int = Field(1_024, ge=1, description="Requests at once on a node that never turned one away.")

    def breaker(self) -> BreakerSettings:
        """The rules about one node."""
        return BreakerSettings(
            slow_min_outcomes=self.slow_min_outcomes,
            slow_p95_ms=self.slow_p95_ms,
            slow_failure_ratio=self.slow_failure_ratio,
            slow_hold_ms=self.slow_hold_ms,
            consecutive_failures=self.consecutive_failures,
            burst_min_outcomes=self.burst_min_outcomes,
            burst_failure_ratio=self.burst_failure_ratio,
            hinted_failures=self.hinted_failures,
            hint_max_age_ms=self.hint_max_age_ms,
            probe_ms=self.probe_ms,
            good_probes=self.good_probes,
            slow_start_ms=self.slow_start_ms,
            backoff_min_ms=self.backoff_min_ms,
            backoff_max_ms=self.backoff_max_ms,
        )

    def pool(self) -> PoolSettings:
        """The rules about a tier."""
        return PoolSettings(max_ejected_ratio=self.max_ejected_ratio, may_lose_last=self.may_lose_last)

    def concurrency(self) -> ConcurrencySettings:
        """How many requests a node takes."""
        return ConcurrencySettings(largest=float(self.largest_window))
