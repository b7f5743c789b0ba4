# cython: annotation_typing=False
"""One score from three signals, and what it says about the tier. Pure.

The score is the complexity of the text, corrected by how much more head-room and recent success the full tier has
than the lite one. Each signal has a spread; one that is old or missing widens it. Where the threshold lies within the
spread of the score, the score says nothing, and the default is taken: never simply the cheapest.

`score.pxd` gives the types with which this very file is compiled.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.core.complexity import Complexity

_NEUTRAL: Final = 0.5
# What a status is taken to be off by just before it counts as old, in full loads; and once it does.
AGEING_SPREAD: Final = 0.2
STALE_SPREAD: Final = 0.5
# Looking a name up in an enum of protobuf costs as much as adding up.
_NO_TIER: Final = Tier.TIER_UNSPECIFIED
_LITE: Final = Tier.TIER_LITE
_FULL: Final = Tier.TIER_FULL
_UNCERTAIN: Final = TierReason.TIER_REASON_UNCERTAIN
_SCORE: Final = TierReason.TIER_REASON_SCORE
_HEADROOM: Final = TierReason.TIER_REASON_HEADROOM
_SUCCESS: Final = TierReason.TIER_REASON_SUCCESS


class TierSignals(NamedTuple):
    """What is known of the best route of a tier: values and spreads from 0 to 1, ages in milliseconds.

    `headroom` is the part of its slots that is free; `success` is how likely an attempt succeeds. An age is None, and
    the weakness says so, where nothing has been heard yet.
    """

    headroom: float = _NEUTRAL
    headroom_spread: float = _NEUTRAL
    headroom_age_ms: int | None = None
    headroom_weakness: str = "unseen"
    success: float = _NEUTRAL
    success_spread: float = _NEUTRAL
    success_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """`threshold`: from here up the full tier is meant. `hysteresis` moves it away from a conversation's own tier.

    The weights say how far the signal can move the score at most. `doubt_weight` is the part of the classifier's own
    spread that widens the score's: a threshold that is calibrated to a share keeps that share only where it is 0.
    """

    threshold: float = 0.5
    hysteresis: float = 0.1
    headroom_weight: float = 0.1
    success_weight: float = 0.2
    doubt_weight: float = 0.0


class Part(NamedTuple):
    """One signal in a score; see `ScorePart` in router.proto."""

    signal: str
    value: float
    spread: float
    weight: float
    age_ms: int | None
    weakness: str


class Score(NamedTuple):
    """A score and what it was made of; `lite` and `full` are the tiers' signals, `weights` what they counted."""

    value: float
    spread: float
    threshold: float
    complexity: Complexity
    lite: TierSignals
    full: TierSignals
    weights: ScoreSettings

    @property
    def headroom(self) -> float:
        """How much more head-room the full tier has."""
        return self.full.headroom - self.lite.headroom

    @property
    def success(self) -> float:
        """How much likelier an attempt at the full tier succeeds."""
        return self.full.success - self.lite.success

    @property
    def weakness(self) -> str:
        """What is wrong with the head-room of a tier; empty where nothing is."""
        return self.full.headroom_weakness or self.lite.headroom_weakness

    @property
    def parts(self) -> tuple[Part, ...]:
        """What was added up, for people."""
        lite, full, weights = self.lite, self.full, self.weights
        return (
            Part("complexity", self.complexity.score or 0.0, weights.doubt_weight * self.complexity.spread, 1.0, 0, ""),
            Part(
                "headroom",
                self.headroom,
                (full.headroom_spread + lite.headroom_spread) / 2,
                weights.headroom_weight,
                _older(full.headroom_age_ms, lite.headroom_age_ms),
                self.weakness,
            ),
            Part(
                "success",
                self.success,
                (full.success_spread + lite.success_spread) / 2,
                weights.success_weight,
                _older(full.success_age_ms, lite.success_age_ms),
                "none" if full.success_age_ms is None or lite.success_age_ms is None else "",
            ),
        )


def read_tier(score: Score) -> tuple[Tier.ValueType, TierReason.ValueType]:
    """The tier that a score means and the signal that says so; TIER_UNSPECIFIED and UNCERTAIN where it says nothing."""
    value, spread, threshold, complexity, _, _, weights = score
    distance = value - threshold
    if -spread <= distance < spread:
        return _NO_TIER, _UNCERTAIN
    is_full = distance >= 0
    tier = _FULL if is_full else _LITE
    if is_full == ((complexity.score or 0.0) >= threshold):
        return tier, _SCORE
    headroom, success = score.headroom * weights.headroom_weight, score.success * weights.success_weight
    is_by_headroom = headroom > success if is_full else headroom < success
    return tier, _HEADROOM if is_by_headroom else _SUCCESS


def _older(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
