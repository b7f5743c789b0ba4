"""What a run over many posts came to. Pure arithmetic."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one post. Times are milliseconds seen by this client, from the call to the frame; None: never.

    `verdict` is ok, invalid, incomplete or error; `reason` says more where it is not ok.
    """

    post_id: str
    verdict: str
    reason: str = ""
    first_field_ms: float | None = None
    total_ms: float = 0.0
    tier: str = ""
    model: str = ""
    cache: str = ""
    frames_sent: int = 0
    frames_received: int = 0
    frames_verified: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    degraded_level: int = 0
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution, in milliseconds. None where there is nothing to measure."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run. `wall_s` is from the first call to the last answer."""

    posts: int
    verdicts: dict[str, int]
    reasons: dict[str, int]
    first_field_ms: Spread
    total_ms: Spread
    tiers: dict[str, int]
    cache: dict[str, int]
    cache_hits: int
    degraded: int
    frames_sent: int
    frames_received: int
    frames_verified: int
    input_tokens: int
    output_tokens: int
    wall_s: float
    models: list[str]

    @property
    def is_good(self) -> bool:
        """Every post has an answer that conforms, and no frame was lost."""
        return self.posts > 0 and self.verdicts.get("ok", 0) == self.posts and self.frames_lost == 0

    @property
    def frames_lost(self) -> int:
        """Frames that were sent and did not arrive."""
        return max(0, self.frames_sent - self.frames_received)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "is_good": self.is_good, "frames_lost": self.frames_lost}


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile; `share` from 0, exclusive, to 1. None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Sequence[float]) -> Spread:
    """Median and 95th percentile."""
    return Spread(percentile(values, 0.5), percentile(values, 0.95))


def summarise(outcomes: Sequence[Outcome], wall_s: float) -> Summary:
    """The summary of a run. Latencies are those of answers that came, whatever their verdict."""
    answered = [outcome for outcome in outcomes if outcome.verdict != "error"]
    return Summary(
        posts=len(outcomes),
        verdicts=dict(Counter(outcome.verdict for outcome in outcomes)),
        reasons=dict(Counter(outcome.reason for outcome in outcomes if outcome.reason)),
        first_field_ms=spread([o.first_field_ms for o in answered if o.first_field_ms is not None]),
        total_ms=spread([o.total_ms for o in answered]),
        tiers=dict(Counter(outcome.tier for outcome in outcomes if outcome.tier)),
        cache=dict(Counter(outcome.cache for outcome in outcomes if outcome.cache)),
        cache_hits=sum(outcome.cache in {"hit", "follower", "similar"} for outcome in outcomes),
        degraded=sum(outcome.degraded_level > 0 for outcome in outcomes),
        frames_sent=sum(outcome.frames_sent for outcome in outcomes),
        frames_received=sum(outcome.frames_received for outcome in outcomes),
        frames_verified=sum(outcome.frames_verified for outcome in outcomes),
        input_tokens=sum(outcome.input_tokens for outcome in outcomes),
        output_tokens=sum(outcome.output_tokens for outcome in outcomes),
        wall_s=wall_s,
        models=sorted({outcome.model for outcome in outcomes if outcome.model}),
    )
