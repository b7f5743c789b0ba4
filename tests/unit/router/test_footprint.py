"""What a decision leaves for people to read."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Decision
from ssop_router.footprint import describe_reasons


def described(score: float) -> float:
    decision = Decision(
        Tier.TIER_LITE,
        TierReason.TIER_REASON_SCORE,
        None,
        NodeReason.NODE_REASON_UNSPECIFIED,
        CacheReason.CACHE_REASON_UNSPECIFIED,
        RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED,
        complexity=Complexity(score=score),
    )
    found = describe_reasons(decision)["complexity"]
    assert isinstance(found, float)
    return found


@given(st.floats(-10, 10))
def test_scores_are_written_to_four_places(score: float) -> None:
    found = described(score)
    assert abs(found - score) <= 0.000_050_001
    assert found == round(found, 4)


def test_what_is_no_number_stops_nobody() -> None:
    assert math.isnan(described(math.nan))
    assert described(math.inf) == math.inf
