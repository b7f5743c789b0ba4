"""The score: what adds up, what widens it, and what it says."""

from dataclasses import replace

import pytest

from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_router.core.choice import add_up
from ssop_router.core.complexity import Complexity
from ssop_router.core.score import Score, ScoreSettings, TierSignals, read_tier

SETTINGS = ScoreSettings(threshold=0.5, hysteresis=0.1, headroom_weight=0.1, success_weight=0.2)
DOUBTING = replace(SETTINGS, doubt_weight=1.0)
GOOD = TierSignals(1.0, 0.0, 10, "", 1.0, 0.0, 10)
FULLY_USED = GOOD._replace(headroom=0.0)
FAILING = GOOD._replace(success=0.2)
NONE = Tier.TIER_UNSPECIFIED


def score(
    complexity: float, lite: TierSignals = GOOD, full: TierSignals = GOOD, spread: float = 0.0, pinned: int = NONE
) -> Score:
    found = add_up(Complexity(complexity, spread), lite, full, SETTINGS, Tier.ValueType(pinned))
    assert found is not None
    return found


@pytest.mark.parametrize("complexity", [Complexity(abstention="off"), Complexity(float("nan"))])
def test_abstention_has_no_score(complexity: Complexity) -> None:
    assert add_up(complexity, GOOD, GOOD, SETTINGS, NONE) is None


@pytest.mark.parametrize(("complexity", "tier"), [(0.5, Tier.TIER_FULL), (0.49, Tier.TIER_LITE)])
def test_threshold(complexity: float, tier: int) -> None:
    assert read_tier(score(complexity)) == (tier, TierReason.TIER_REASON_SCORE)


def test_equal_tiers_leave_the_complexity_as_it_is() -> None:
    assert score(0.3, FULLY_USED, FULLY_USED).value == pytest.approx(0.3)


def test_full_tier_without_room_needs_more_complexity() -> None:
    assert read_tier(score(0.55, full=FULLY_USED)) == (Tier.TIER_LITE, TierReason.TIER_REASON_HEADROOM)


def test_lite_tier_without_room_needs_less() -> None:
    assert read_tier(score(0.45, lite=FULLY_USED)) == (Tier.TIER_FULL, TierReason.TIER_REASON_HEADROOM)


def test_tier_that_fails_of_late_is_avoided() -> None:
    assert read_tier(score(0.6, full=FAILING)) == (Tier.TIER_LITE, TierReason.TIER_REASON_SUCCESS)


def test_no_signal_overrules_a_clear_complexity() -> None:
    assert read_tier(score(0.95, full=FULLY_USED._replace(success=0.0)))[0] == Tier.TIER_FULL


def test_what_nobody_knows_widens_and_moves_nothing() -> None:
    known, unknown = score(0.52), score(0.52, TierSignals(), TierSignals())
    assert unknown.value == known.value
    assert unknown.spread > known.spread
    assert read_tier(unknown) == (NONE, TierReason.TIER_REASON_UNCERTAIN)


@pytest.mark.parametrize(
    ("settings", "complexity", "reason"),
    [
        (SETTINGS, 0.6, TierReason.TIER_REASON_SCORE),
        (DOUBTING, 0.6, TierReason.TIER_REASON_UNCERTAIN),
        (DOUBTING, 0.8, TierReason.TIER_REASON_SCORE),
    ],
)
def test_doubt_of_the_classifier_counts_where_the_operator_says_so(
    settings: ScoreSettings, complexity: float, reason: int
) -> None:
    found = add_up(Complexity(complexity, 0.2), GOOD, GOOD, settings, NONE)
    assert found is not None
    assert read_tier(found)[1] == reason


def test_share_of_the_full_tier_is_that_of_the_threshold() -> None:
    tiers = [read_tier(score(rank / 1000))[0] for rank in range(1000)]
    assert tiers.count(Tier.TIER_FULL) == 500


@pytest.mark.parametrize(
    ("pinned", "complexity", "tier"),
    [
        (Tier.TIER_LITE, 0.55, Tier.TIER_LITE),
        (Tier.TIER_LITE, 0.65, Tier.TIER_FULL),
        (Tier.TIER_FULL, 0.45, Tier.TIER_FULL),
        (Tier.TIER_FULL, 0.35, Tier.TIER_LITE),
    ],
)
def test_two_thresholds_for_a_conversation(pinned: int, complexity: float, tier: int) -> None:
    assert read_tier(score(complexity, pinned=pinned))[0] == tier


def test_parts_have_ages_and_weaknesses() -> None:
    parts = {part.signal: part for part in score(0.5, lite=GOOD._replace(headroom_age_ms=70)).parts}
    assert parts["headroom"].age_ms == 70
    assert add_up(Complexity(0.5), TierSignals(), GOOD, SETTINGS, NONE).parts[1].weakness == "unseen"  # type: ignore[union-attr]


def test_score_stays_from_0_to_1() -> None:
    assert score(1.0, lite=FULLY_USED).value == 1
    assert score(0.0, full=FULLY_USED).value == 0
