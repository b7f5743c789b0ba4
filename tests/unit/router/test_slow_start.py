"""A node that returns: it is asked less than others of its tier, and its tier not less than others."""

import random

import pytest

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.choice import choose_node
from ssop_router.core.decision import DecisionSettings, Features
from ssop_router.core.policy import parse_policy
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot

FULL = Tier.TIER_FULL
SETTINGS = DecisionSettings({"big": FULL}, FULL, status_stale_ms=5_000)
FEATURES = Features(scopes=frozenset({"full"}), policy=parse_policy(""))


def node(address: str, *, weight: float, in_flight: int = 0, limit: int = 64) -> NodeView:
    model = ModelView("m", ModelState.MODEL_STATE_READY, frozenset({FULL}), 1_000, slots_total=4)
    return NodeView(
        address, address, (model,), seen_at_ms=0, is_connected=True, in_flight=in_flight, weight=weight, limit=limit
    )


def choose(*nodes: NodeView) -> tuple[str, float]:
    """The node that is asked, and the head-room that the decision sees."""
    candidate, _ = choose_node(FEATURES, Snapshot(nodes), SETTINGS, FULL, now_ms=10, rng=random.Random(0))
    assert candidate is not None
    return candidate.address, candidate.signals.headroom


def test_node_that_returns_is_asked_after_one_that_has_more_to_do() -> None:
    assert choose(node("back", weight=0.1), node("busy", weight=1.0, in_flight=8))[0] == "busy"


def test_node_that_returns_is_asked_before_one_that_is_over_its_limit() -> None:
    assert choose(node("back", weight=0.1), node("full", weight=1.0, in_flight=8, limit=8))[0] == "back"


@pytest.mark.parametrize("in_flight", [0, 1, 3, 8])
def test_slow_start_takes_no_head_room_from_a_tier(in_flight: int) -> None:
    usual = choose(node("n", weight=1.0, in_flight=in_flight))[1]
    assert choose(node("n", weight=0.1, in_flight=in_flight))[1] == pytest.approx(usual)
