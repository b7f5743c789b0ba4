"""Any snapshot, any request: a reason or a MeshError, never a node that a filter took out, the same for a seed."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import NodeReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Decision, DecisionSettings, Features, decide, weigh
from ssop_router.core.explanation import explain
from ssop_router.core.ladder import Situation, next_target
from ssop_router.core.policy import WORD_OF_TIER, WORDS, Policy, parse_policy
from ssop_router.core.rules import Rule
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot
from ssop_router.core.success import SuccessView

TIERS = st.sampled_from([Tier.TIER_LITE, Tier.TIER_FULL])
CAPABILITIES = st.frozensets(st.sampled_from(["image", "audio", "tools"]))
MODELS = st.builds(
    ModelView,
    name=st.sampled_from(["a", "b"]),
    state=st.sampled_from(ModelState.values()),
    tiers=st.frozensets(TIERS),
    context_tokens=st.sampled_from([0, 1, 100, 10_000]),
    slots_total=st.integers(0, 8),
    slots_busy=st.floats(0, 100),
    queue_length=st.floats(0, 1000),
    capabilities=CAPABILITIES,
    has_logprobs=st.booleans(),
    load_age_ms=st.integers(0, 10**6),
)
NODES = st.builds(
    NodeView,
    address=st.sampled_from(["n1", "n2", "n3", "n4"]),
    models=st.lists(MODELS, max_size=3).map(tuple),
    seen_at_ms=st.none() | st.integers(-(10**7), 10**7),
    is_connected=st.booleans(),
    in_flight=st.integers(0, 1000),
    memory_free_ratio=st.none() | st.floats(0, 1),
    expected_tiers=st.frozensets(TIERS),
    is_ejected=st.booleans(),
    weight=st.floats(0.01, 1),
    limit=st.integers(0, 2_000),
    successes=st.builds(
        SuccessView,
        successes=st.floats(0, 1e6),
        failures=st.floats(0, 1e6),
        at_ms=st.none() | st.integers(-(10**7), 10**7),
        half_life_ms=st.integers(1, 10**6),
    ),
)
COMPLEXITIES = st.builds(
    Complexity,
    score=st.none() | st.floats(0, 1) | st.just(float("nan")),
    spread=st.floats(0, 1),
    abstention=st.sampled_from(["", "off", "deadline"]),
)
SNAPSHOTS = st.lists(NODES, max_size=5, unique_by=lambda node: node.address).map(lambda nodes: Snapshot(tuple(nodes)))
POLICIES = st.builds(
    Policy,
    tier=st.sampled_from([Tier.TIER_UNSPECIFIED, Tier.TIER_LITE, Tier.TIER_FULL]),
    is_cache_off=st.booleans(),
    is_rag_off=st.booleans(),
    is_cascade=st.booleans(),
)
FEATURES = st.builds(
    Features,
    scopes=st.frozensets(st.sampled_from(["lite", "full", "rag", "ssop", "admin"])),
    policy=POLICIES,
    model=st.sampled_from(["", "big", "small", "auto", "unknown"]),
    user_text=st.text(max_size=20),
    documents=st.integers(0, 3),
    prompt_bytes=st.integers(0, 10**6),
    max_output_tokens=st.integers(0, 10**5),
    capabilities=CAPABILITIES,
    needs_logprobs=st.booleans(),
    temperature=st.floats(0, 2),
    names_collections=st.booleans(),
    conversation_tier=st.sampled_from([Tier.TIER_UNSPECIFIED, Tier.TIER_LITE, Tier.TIER_FULL]),
    conversation_switches=st.integers(0, 2),
    is_cache_first=st.booleans(),
)
SETTINGS = DecisionSettings(
    {"big": Tier.TIER_FULL, "small": Tier.TIER_LITE, "auto": Tier.TIER_UNSPECIFIED},
    Tier.TIER_FULL,
    (Rule(Tier.TIER_FULL, TierReason.TIER_REASON_MANY_DOCUMENTS, min_documents=2),),
)
DEFAULT = Complexity(abstention="off")


def run(
    features: Features, snapshot: Snapshot, now_ms: int, seed: int, complexity: Complexity = DEFAULT
) -> Decision | None:
    try:
        return decide(features, snapshot, SETTINGS, now_ms, random.Random(seed), score_text=lambda _: complexity)
    except MeshError:
        return None


def may_serve(node: NodeView, model: ModelView, features: Features, tier: Tier.ValueType) -> bool:
    """The filters, said once more."""
    return (
        model.state == ModelState.MODEL_STATE_READY
        and tier in model.tiers
        and features.capabilities <= model.capabilities
        and (model.has_logprobs or not features.needs_logprobs)
        and (
            not model.context_tokens or features.least_input_tokens + features.max_output_tokens <= model.context_tokens
        )
        and not node.is_ejected
    )


def check_candidate(features: Features, snapshot: Snapshot, tier: Tier.ValueType, address: str, model: str) -> None:
    node = next(node for node in snapshot.nodes if node.address == address)
    assert not node.is_ejected
    if node.seen_at_ms is None:
        assert not node.expected_tiers or tier in node.expected_tiers
    else:
        assert any(m.name == model and may_serve(node, m, features, tier) for m in node.models)


@given(FEATURES, SNAPSHOTS, st.integers(-(10**7), 10**7), st.integers(0, 9), COMPLEXITIES)
def test_decision_has_reasons_and_never_a_filtered_node(
    features: Features, snapshot: Snapshot, now_ms: int, seed: int, complexity: Complexity
) -> None:
    decision = run(features, snapshot, now_ms, seed, complexity)
    if decision is None:
        return
    assert decision.tier_reason != TierReason.TIER_REASON_UNSPECIFIED
    assert WORD_OF_TIER[decision.tier] in features.scopes
    if features.policy.is_cascade:
        assert decision.tier == Tier.TIER_LITE
        assert {"lite", "full"} <= features.scopes
    elif features.policy.tier:
        assert decision.tier == features.policy.tier
    if decision.candidate is not None:
        assert decision.node_reason != NodeReason.NODE_REASON_UNSPECIFIED
        chosen = decision.candidate
        check_candidate(features, snapshot, decision.tier, chosen.address, chosen.model)


@given(FEATURES, SNAPSHOTS, st.integers(-(10**7), 10**7), st.integers(0, 9), COMPLEXITIES)
def test_same_seed_same_decision(
    features: Features, snapshot: Snapshot, now_ms: int, seed: int, complexity: Complexity
) -> None:
    once, again = (run(features, snapshot, now_ms, seed, complexity) for _ in range(2))
    assert repr(once) == repr(again)


@given(FEATURES, SNAPSHOTS, st.integers(-(10**7), 10**7), st.integers(0, 9), COMPLEXITIES)
def test_every_decision_can_be_explained(
    features: Features, snapshot: Snapshot, now_ms: int, seed: int, complexity: Complexity
) -> None:
    decision = run(features, snapshot, now_ms, seed, complexity)
    if decision is None:
        return
    found, score = weigh(features, snapshot, SETTINGS, now_ms, random.Random(seed), score_text=lambda _: complexity)
    told = explain(decision, features, snapshot, SETTINGS, now_ms=now_ms, complexity=found, score=score)
    assert len(told.lines) >= 4
    if decision.candidate is not None:
        verdict = next(v for v in told.verdicts if v.address == decision.candidate.address and v.tier == decision.tier)
        assert (verdict.fault, verdict.load) == ("", decision.candidate.load)


@given(FEATURES, SNAPSHOTS, st.integers(0, 9), st.floats(0, 1), st.integers(0, 10**7))
def test_older_signals_never_make_the_score_surer(
    features: Features, snapshot: Snapshot, seed: int, complexity: float, later_ms: int
) -> None:
    spreads = []
    for now_ms in (10**7, 10**7 + later_ms):
        _, score = weigh(
            features, snapshot, SETTINGS, now_ms, random.Random(seed), score_text=lambda _: Complexity(complexity)
        )
        assert score is not None
        spreads.append(score.parts[1].spread)
    if all(not node.is_ejected for node in snapshot.nodes) and len(snapshot.nodes) <= 1:
        assert spreads[1] >= spreads[0]


@given(SNAPSHOTS, st.integers(0, 10**7), st.integers(0, 9), COMPLEXITIES)
def test_abstention_takes_the_default_where_it_can(
    snapshot: Snapshot, now_ms: int, seed: int, complexity: Complexity
) -> None:
    features = Features(scopes=frozenset({"lite", "full"}))
    decision = run(features, snapshot, now_ms, seed, complexity)
    if decision is None or decision.score is not None or decision.candidate is None:
        return
    assert decision.tier == SETTINGS.default_tier or decision.tier_reason == TierReason.TIER_REASON_OTHER_UNAVAILABLE


@given(FEATURES, SNAPSHOTS, st.integers(0, 3), st.integers(0, 9))
def test_ladder_ends_and_repeats_no_node(features: Features, snapshot: Snapshot, level: int, seed: int) -> None:
    decision = run(features, snapshot, 0, seed)
    if decision is None:
        return
    failed: tuple[str, ...] = ()
    for _ in range(SETTINGS.max_attempts + 1):
        situation = Situation(features, decision, snapshot, SETTINGS, level, failed)
        try:
            target = next_target(situation, 0, random.Random(seed))
        except MeshError:
            return
        assert target.candidate.address not in failed
        assert target.degraded_level <= level
        check_candidate(features, snapshot, target.tier, target.candidate.address, target.candidate.model)
        failed = (*failed, target.candidate.address)
    raise AssertionError("the ladder has no end")


@given(st.lists(st.sampled_from([*WORDS, "x", ""])))
def test_policy_is_parsed_or_refused(words: list[str]) -> None:
    try:
        policy = parse_policy(",".join(words))
    except MeshError:
        return
    assert parse_policy(policy.text) == policy
