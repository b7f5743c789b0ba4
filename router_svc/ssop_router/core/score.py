"""One score from three signals, and what it says about the tier. Pure.

The score is the complexity of the text, corrected by how much more head-room and recent success the full tier has
than the lite one. Each signal has a spread; one that is old or missing widens it. Where the threshold lies within the
spread of the score, the score says nothing, and the default is taken: never simply the cheapest.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.core.complexity import Complexity

_NEUTRAL: Final = 0.5
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

    The weights say how far the signal can move the score at most.
    """

    threshold: float = 0.5
    hysteresis: float = 0.1
    headroom_weight: float = 0.1
    success_weight: float = 0.2


class Part(NamedTuple):
    """One signal in a score; see `ScorePart` in router.proto."""

    signal: str
    value: float
    spread: float
    weight: float
    age_ms: int | None
    weakness: str


class Score(NamedTuple):
    """A score with its parts. `complexity` is that of the text alone."""

    value: float
    spread: float
    threshold: float
    complexity: float
    parts: tuple[Part, ...]


def add_up(
    complexity: Complexity, lite: TierSignals, full: TierSignals, settings: ScoreSettings, pinned: Tier.ValueType
) -> Score | None:
    """The score; None where the classifier abstains. `pinned` is the tier of the conversation."""
    if complexity.score is None or math.isnan(complexity.score):
        return None
    by_headroom, by_success = settings.headroom_weight, settings.success_weight
    headroom = full.headroom - lite.headroom
    headroom_spread = (full.headroom_spread + lite.headroom_spread) / 2
    success = full.success - lite.success
    success_spread = (full.success_spread + lite.success_spread) / 2
    value = complexity.score + by_headroom * headroom + by_success * success
    spread = complexity.spread + by_headroom * headroom_spread + by_success * success_spread
    threshold = settings.threshold
    if pinned:
        threshold = min(1.0, threshold + (settings.hysteresis if pinned == _LITE else -settings.hysteresis))
    parts = (
        Part("complexity", complexity.score, complexity.spread, 1.0, 0, ""),
        Part(
            "headroom",
            headroom,
            headroom_spread,
            by_headroom,
            _older(full.headroom_age_ms, lite.headroom_age_ms),
            full.headroom_weakness or lite.headroom_weakness,
        ),
        Part(
            "success",
            success,
            success_spread,
            by_success,
            _older(full.success_age_ms, lite.success_age_ms),
            "none" if full.success_age_ms is None or lite.success_age_ms is None else "",
        ),
    )
    return Score(min(1.0, max(0.0, value)), spread, threshold, complexity.score, parts)


def read_tier(score: Score) -> tuple[Tier.ValueType, TierReason.ValueType]:
    """The tier that a score means and the signal that says so; TIER_UNSPECIFIED and UNCERTAIN where it says nothing."""
    distance = score.value - score.threshold
    if -score.spread <= distance < score.spread:
        return _NO_TIER, _UNCERTAIN
    is_full = distance >= 0
    tier = _FULL if is_full else _LITE
    if is_full == (score.complexity >= score.threshold):
        return tier, _SCORE
    headroom, success = (part.value * part.weight for part in score.parts[1:])
    is_by_headroom = headroom > success if is_full else headroom < success
    return tier, _HEADROOM if is_by_headroom else _SUCCESS


def _older(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
