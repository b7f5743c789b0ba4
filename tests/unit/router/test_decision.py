"""Choosing tier and node, one fact each."""

import random
from typing import Any

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.complexity import Complexity
from ssop_router.core.decision import Decision, DecisionSettings, Features, decide, is_cacheable
from ssop_router.core.explanation import explain
from ssop_router.core.policy import parse_policy
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot

R = ErrorReason
LITE, FULL = Tier.TIER_LITE, Tier.TIER_FULL
SETTINGS = DecisionSettings({"big": FULL, "small": LITE, "auto": Tier.TIER_UNSPECIFIED}, FULL, status_stale_ms=5_000)
ALL = frozenset({"lite", "full", "rag", "ssop"})


def model(tier: Tier.ValueType, **fields: Any) -> ModelView:
    values: dict[str, Any] = {
        "name": "m",
        "state": ModelState.MODEL_STATE_READY,
        "tiers": frozenset({tier}),
        "context_tokens": 1000,
        "slots_total": 4,
    }
    return ModelView(**{**values, **fields})


def node(address: str, *models: ModelView, **fields: Any) -> NodeView:
    return NodeView(address, address, models, **{"seen_at_ms": 0, "is_connected": True, **fields})


NODES = Snapshot((node("f", model(FULL)), node("l", model(LITE))))


def run(snapshot: Snapshot = NODES, settings: DecisionSettings = SETTINGS, seed: int = 1, **fields: Any) -> Decision:
    policy = parse_policy(fields.pop("policy", ""))
    features = Features(**{"scopes": ALL, "policy": policy, **fields})
    return decide(features, snapshot, settings, 100, random.Random(seed))


def refusal(**fields: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        run(**fields)
    return caught.value


def test_default_tier_where_nothing_speaks() -> None:
    assert (run().tier, run().tier_reason) == (FULL, TierReason.TIER_REASON_DEFAULT)


def test_policy_forces_a_tier() -> None:
    decision = run(policy="lite")
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_POLICY_FORCED)


def test_model_names_a_tier() -> None:
    decision = run(model="small")
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_MODEL_NAMED)


def test_model_auto_names_no_tier() -> None:
    assert run(model="auto").tier_reason == TierReason.TIER_REASON_DEFAULT


def test_unknown_model_is_an_error_with_its_name() -> None:
    error = refusal(model="huge")
    assert error.reason == R.ERROR_REASON_MODEL_UNKNOWN
    assert error.metadata["model"] == "huge"


def test_model_and_policy_that_contradict_each_other() -> None:
    assert refusal(model="big", policy="lite").reason == R.ERROR_REASON_POLICY_INVALID


@pytest.mark.parametrize(("fields", "scope"), [({"policy": "full"}, "full"), ({"model": "small"}, "lite")])
def test_missing_scope_is_named(fields: dict[str, Any], scope: str) -> None:
    error = refusal(**fields, scopes=ALL - {scope})
    assert error.reason == R.ERROR_REASON_SCOPE_MISSING
    assert error.metadata["scope"] == scope


def test_key_without_any_tier_is_refused() -> None:
    assert refusal(scopes=frozenset({"admin"})).reason == R.ERROR_REASON_SCOPE_MISSING


def test_scope_leaves_one_tier() -> None:
    decision = run(scopes=frozenset({"lite"}))
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_SCOPE)


def test_forced_tier_without_a_node_is_not_replaced() -> None:
    decision = run(Snapshot((node("l", model(LITE)),)), policy="full")
    assert decision.tier == FULL
    assert decision.candidate is None


def test_other_tier_serves_when_the_wanted_one_can_not() -> None:
    decision = run(Snapshot((node("l", model(LITE)),)))
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_OTHER_UNAVAILABLE)


@pytest.mark.parametrize("is_ejected", [True, False], ids=["ejected", "warming"])
def test_lite_is_no_quiet_replacement_for_full_nodes_that_are_down(is_ejected: bool) -> None:
    state = ModelState.MODEL_STATE_READY if is_ejected else ModelState.MODEL_STATE_WARMING
    down = node("f", model(FULL, state=state), is_ejected=is_ejected)
    decision = run(Snapshot((down, node("l", model(LITE)))))
    assert (decision.tier, decision.candidate) == (FULL, None)


def test_full_may_serve_what_was_meant_for_lite_nodes_that_are_down() -> None:
    down = node("l", model(LITE), is_ejected=True)
    decision = run(Snapshot((down, node("f", model(FULL)))), conversation_tier=LITE)
    assert (decision.tier, decision.tier_reason) == (FULL, TierReason.TIER_REASON_OTHER_UNAVAILABLE)


def test_prompt_that_fits_the_other_tier_only() -> None:
    snapshot = Snapshot((node("f", model(FULL, context_tokens=10)), node("l", model(LITE))))
    decision = run(snapshot, prompt_bytes=400)
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_CONTEXT_FIT)


def test_content_that_the_other_tier_only_can_take() -> None:
    snapshot = Snapshot((node("f", model(FULL)), node("l", model(LITE, capabilities=frozenset({"image"})))))
    decision = run(snapshot, capabilities=frozenset({"image"}))
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_CAPABILITY)


def test_prompt_that_fits_nowhere_names_the_limit() -> None:
    error = refusal(policy="full", prompt_bytes=80_000)
    assert error.reason == R.ERROR_REASON_CONTEXT_EXCEEDED
    assert error.metadata["limit_tokens"] == "1000"


def test_answer_counts_towards_the_context() -> None:
    assert refusal(policy="full", max_output_tokens=1001).reason == R.ERROR_REASON_CONTEXT_EXCEEDED


def test_unknown_context_filters_nothing() -> None:
    snapshot = Snapshot((node("f", model(FULL, context_tokens=0)),))
    assert run(snapshot, prompt_bytes=10**6).candidate is not None


def test_content_that_nobody_can_take() -> None:
    error = refusal(capabilities=frozenset({"audio"}), policy="full")
    assert error.reason == R.ERROR_REASON_CONTENT_UNSUPPORTED


def test_log_probabilities_that_nobody_gives() -> None:
    assert refusal(needs_logprobs=True, policy="full").reason == R.ERROR_REASON_LOGPROBS_UNSUPPORTED


@pytest.mark.parametrize(
    "state",
    [
        ModelState.MODEL_STATE_LOADING,
        ModelState.MODEL_STATE_WARMING,
        ModelState.MODEL_STATE_DRAINING,
        ModelState.MODEL_STATE_FAILED,
    ],
)
def test_model_that_is_not_ready_serves_nothing(state: ModelState.ValueType) -> None:
    assert run(Snapshot((node("f", model(FULL, state=state)),)), policy="full").candidate is None


def test_ejected_node_serves_nothing() -> None:
    assert run(Snapshot((node("f", model(FULL), is_ejected=True),)), policy="full").candidate is None


def test_node_with_the_least_in_flight_per_slot() -> None:
    snapshot = Snapshot(
        (node("a", model(FULL, slots_total=1), in_flight=1), node("b", model(FULL, slots_total=8), in_flight=4))
    )
    decision = run(snapshot)
    assert decision.candidate is not None
    assert decision.candidate.address == "b"
    assert decision.node_reason == NodeReason.NODE_REASON_HEADROOM


def test_load_that_others_put_on_a_node_counts() -> None:
    snapshot = Snapshot((node("a", model(FULL, slots_busy=4.0, queue_length=3.0)), node("b", model(FULL), in_flight=1)))
    decision = run(snapshot)
    assert decision.candidate is not None
    assert decision.candidate.address == "b"


def test_ties_are_broken_by_the_seed() -> None:
    snapshot = Snapshot((node("a", model(FULL)), node("b", model(FULL))))
    chosen = {run(snapshot, seed=seed).candidate.address for seed in range(20)}  # type: ignore[union-attr]
    assert chosen == {"a", "b"}


def test_node_with_an_old_status_is_avoided_not_excluded() -> None:
    old = node("old", model(FULL), seen_at_ms=-10_000)
    both = run(Snapshot((old, node("new", model(FULL), in_flight=2))))
    assert both.candidate is not None
    assert both.candidate.address == "new"
    alone = run(Snapshot((old,)))
    assert alone.candidate is not None


def test_all_old_is_said() -> None:
    nodes = tuple(node(name, model(FULL), is_connected=False) for name in "ab")
    assert run(Snapshot(nodes)).node_reason == NodeReason.NODE_REASON_STATUS_STALE


def test_node_that_was_never_seen_is_used_for_its_expected_tier_only() -> None:
    unseen = NodeView("n", expected_tiers=frozenset({LITE}))
    assert run(Snapshot((unseen,)), policy="lite").candidate is not None
    assert run(Snapshot((unseen,)), policy="full").candidate is None


def test_node_short_of_memory_is_avoided() -> None:
    snapshot = Snapshot((node("a", model(FULL), memory_free_ratio=0.001), node("b", model(FULL), in_flight=3)))
    decision = run(snapshot)
    assert decision.candidate is not None
    assert decision.candidate.address == "b"


def test_model_of_both_tiers_is_shared() -> None:
    snapshot = Snapshot((node("a", model(FULL, tiers=frozenset({LITE, FULL}))),))
    decision = run(snapshot)
    assert decision.candidate is not None
    assert decision.candidate.is_shared_model


def test_conversation_keeps_its_tier_against_the_rules() -> None:
    decision = run(conversation_tier=LITE)
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_CONVERSATION_PIN)


def test_policy_goes_before_the_conversation() -> None:
    assert run(conversation_tier=LITE, policy="full").tier == FULL


def test_cascade_begins_with_lite() -> None:
    decision = run(policy="cascade")
    assert (decision.tier, decision.tier_reason) == (LITE, TierReason.TIER_REASON_CASCADE_LITE)


@pytest.mark.parametrize("missing", ["lite", "full"])
def test_cascade_needs_both_scopes(missing: str) -> None:
    error = refusal(policy="cascade", scopes=frozenset({"lite", "full", "ssop"} - {missing}))
    assert error.reason == R.ERROR_REASON_SCOPE_MISSING
    assert error.metadata["scope"] == missing


def test_cascade_of_one_named_model_contradicts_itself() -> None:
    assert refusal(policy="cascade", model="big").reason == R.ERROR_REASON_POLICY_INVALID


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"policy": "no_cache"}, CacheReason.CACHE_REASON_POLICY_OFF),
        ({"temperature": 0.5}, CacheReason.CACHE_REASON_TEMPERATURE),
        ({"temperature": 0.5, "is_sampled_cacheable": True}, CacheReason.CACHE_REASON_UNSPECIFIED),
    ],
)
def test_cache_plan(fields: dict[str, Any], reason: int) -> None:
    assert run(**fields).cache_reason == reason


def test_answers_with_log_probabilities_are_not_cached() -> None:
    assert not is_cacheable(Features(scopes=ALL, needs_logprobs=True))


def test_retrieval_plan() -> None:
    assert run(policy="no_rag").retrieval_reason == RetrievalReason.RETRIEVAL_REASON_POLICY_OFF
    assert run(scopes=ALL - {"rag"}).retrieval_reason == RetrievalReason.RETRIEVAL_REASON_SCOPE


def test_explanation_says_why_a_node_is_out() -> None:
    snapshot = Snapshot((node("a", model(FULL, state=ModelState.MODEL_STATE_FAILED)), node("b", model(FULL))))
    features = Features(scopes=ALL)
    decision = decide(features, snapshot, SETTINGS, 100, random.Random(1))
    found = explain(decision, features, snapshot, SETTINGS, now_ms=100, complexity=Complexity(), score=None)
    assert any("node a is out: state" in line for line in found.lines)


def test_snapshot_is_immutable() -> None:
    with pytest.raises(AttributeError):
        NODES.nodes[0].in_flight = 3  # type: ignore[misc]
