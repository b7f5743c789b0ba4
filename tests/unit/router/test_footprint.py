"""What a decision leaves for people to read."""

import math

from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Decision
from ssop_router.footprint import describe_reasons

way = run_both_ways("ssop_router.footprint", "describe_reasons")


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


@given(st.floats(-10, 10) | st.integers(-20_000, 20_000).map(lambda halves: halves / 20_000))
def test_scores_are_written_to_four_places(score: float) -> None:
    assert str(described(score)) == str(round(score * 10_000) / 10_000)


def test_what_is_no_number_stops_nobody() -> None:
    assert math.isnan(described(math.nan))
    assert described(math.inf) == math.inf
