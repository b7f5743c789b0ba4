"""The compiled choice and its twin decide alike to the last bit, for any snapshot, request, settings and seed."""

import random
from collections.abc import Set
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier
from ssop_router.core import _choice, _choice_py
from ssop_router.core.canary import Canary
from ssop_router.core.complexity import Complexity
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.score import ScoreSettings, TierSignals
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.core.success import SuccessView

TIERS = st.sampled_from([Tier.TIER_LITE, Tier.TIER_FULL])
# What a node says of itself may be anything.
LOADS = st.sampled_from([0.0, 1.0, 3.0]) | st.floats(allow_nan=True, allow_infinity=True)
CAPABILITIES = st.frozensets(st.sampled_from(["image", "audio", "tools"]))
TIMES_MS = st.integers(0, 20_000)
MODELS = st.builds(
    ModelView,
    name=st.sampled_from(["", "a", "b"]),
    state=st.sampled_from([ModelState.MODEL_STATE_READY, ModelState.MODEL_STATE_READY, ModelState.MODEL_STATE_FAILED]),
    tiers=st.frozensets(TIERS) | st.just(frozenset({Tier.TIER_LITE, Tier.TIER_FULL, -7, 2**31 - 1})),
    context_tokens=st.sampled_from([0, 1, 100, 2**32 - 1, 10**30]),
    slots_total=st.sampled_from([0, 1, 4, 2**32 - 1]),
    slots_busy=LOADS,
    queue_length=LOADS,
    capabilities=CAPABILITIES,
    has_logprobs=st.booleans(),
    load_age_ms=st.integers(0, 10**6),
)
SUCCESSES = st.builds(
    SuccessView,
    successes=st.floats(0, 1e6),
    failures=st.sampled_from([0.0, 0.04, 0.05, 3.0]) | st.floats(0, 1e6),
    at_ms=st.none() | TIMES_MS,
    half_life_ms=st.sampled_from([1, 30_000]),
)


def nodes(number: int) -> st.SearchStrategy[NodeView]:
    return st.builds(
        NodeView,
        address=st.just(f"n{number}"),
        name=st.sampled_from(["", "x"]),
        models=st.lists(MODELS, max_size=3).map(tuple),
        seen_at_ms=st.none() | TIMES_MS,
        is_connected=st.booleans(),
        in_flight=st.integers(0, 5) | st.integers(0, 2**31),
        memory_free_ratio=st.none() | st.sampled_from([0.0, 0.02, 0.5]) | st.just(float("nan")),
        expected_tiers=st.frozensets(TIERS),
        is_ejected=st.sampled_from([False, False, False, True]),
        ejection_reason=st.just(""),
        successes=st.just(SuccessView()) | SUCCESSES,
        weight=st.just(1.0) | st.floats(0.01, 1),
        limit=st.sampled_from([2**31, 10**30]) | st.integers(0, 5),
    )


SNAPSHOTS = st.integers(0, 6).flatmap(lambda size: st.tuples(*(nodes(at) for at in range(size)))).map(Snapshot)
FEATURES = st.builds(
    Features,
    scopes=st.just(frozenset({"lite", "full"})),
    prompt_bytes=st.sampled_from([0, 8, 10**6]),
    max_output_tokens=st.sampled_from([0, 1, 99]),
    capabilities=CAPABILITIES,
    needs_logprobs=st.booleans(),
    canaries=st.frozensets(st.sampled_from(["a", "b"])),
)
SETTINGS = st.builds(
    DecisionSettings,
    model_tiers=st.just({}),
    default_tier=TIERS,
    status_stale_ms=st.sampled_from([1, 5_000, 2**53 + 1, 2**61, 10**30]),
    low_memory_ratio=st.sampled_from([0.0, 0.02]),
    canaries=st.lists(st.builds(Canary, tier=TIERS, model=st.sampled_from(["", "a", "b"])), max_size=1),
)
FAILED = st.frozensets(st.sampled_from(["n0", "n1", "n9"]))


def choose(kernel: Any, snapshot: Snapshot, seed: int, **options: Any) -> tuple[str, float]:
    """What a kernel says, exactly and with its types, and where its randomness stands then."""
    rng = random.Random(seed)
    # A view holds what one kernel has worked out: the other gets views of its own.
    own = Snapshot(tuple(node._replace() for node in snapshot.nodes))
    found = kernel.choose_node(snapshot=own, rng=rng, **options)
    again = kernel.choose_node(snapshot=own, rng=random.Random(seed), **options)
    assert repr(found) == repr(again)
    return repr(found), rng.random()


@given(FEATURES, SNAPSHOTS, SETTINGS, TIERS, TIMES_MS, FAILED, st.integers(0, 3))
@example(
    Features(frozenset()),
    Snapshot(tuple(NodeView(f"n{at}") for at in range(200))),
    DecisionSettings({}, Tier.TIER_LITE),
    Tier.TIER_LITE,
    0,
    frozenset(),
    1,
)
def test_kernel_and_twin_choose_the_same_node_for_the_same_reason(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    now_ms: int,
    failed: Set[str],
    seed: int,
) -> None:
    options = {"features": features, "settings": settings, "tier": tier, "now_ms": now_ms, "failed": failed}
    assert choose(_choice, snapshot, seed, **options) == choose(_choice_py, snapshot, seed, **options)


@given(FEATURES, SNAPSHOTS, SETTINGS, TIMES_MS, st.floats(0, 1) | st.none(), st.integers(0, 3))
def test_both_tiers_are_chosen_as_one_after_the_other(
    features: Features, snapshot: Snapshot, settings: DecisionSettings, now_ms: int, score: float | None, seed: int
) -> None:
    said = []
    for kernel in (_choice, _choice_py):
        own = Snapshot(tuple(node._replace() for node in snapshot.nodes))
        rng = random.Random(seed)
        found = kernel.choose_both(features, own, settings, now_ms=now_ms, rng=rng, complexity=Complexity(score))
        said.append((repr(found), rng.random()))
    assert said[0] == said[1]


RATIOS = st.floats(0, 1)
SIGNALS = st.builds(TierSignals, *(RATIOS for _ in range(2)), st.none(), st.just(""), RATIOS, RATIOS, st.none())


@given(
    st.builds(Complexity, st.none() | st.just(float("nan")) | RATIOS, RATIOS),
    SIGNALS,
    SIGNALS,
    st.builds(ScoreSettings, RATIOS, RATIOS, RATIOS, RATIOS, RATIOS),
    st.sampled_from([Tier.TIER_UNSPECIFIED, Tier.TIER_LITE, Tier.TIER_FULL]),
)
def test_kernel_and_twin_add_up_to_the_same_score(
    complexity: Complexity, lite: TierSignals, full: TierSignals, settings: ScoreSettings, pinned: Tier.ValueType
) -> None:
    compiled = _choice.add_up(complexity, lite, full, settings, pinned)
    assert repr(compiled) == repr(_choice_py.add_up(complexity, lite, full, settings, pinned))
