"""What comes after a failure."""

import random
from typing import Any

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import DegradedReason, NodeReason, Tier
from ssop_chassis.errors import REASONS, MeshError
from ssop_router.core.decision import DecisionSettings, Features, decide
from ssop_router.core.ladder import Situation, Target, interrupt, is_node_failure, name_exhaustion, next_target
from ssop_router.core.policy import parse_policy
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot

R = ErrorReason
SETTINGS = DecisionSettings({}, Tier.TIER_FULL)


def node(address: str, tier: Tier.ValueType) -> NodeView:
    model = ModelView(address, ModelState.MODEL_STATE_READY, frozenset({tier}), 0, 4)
    return NodeView(address, address, (model,), 0, True)


SNAPSHOT = Snapshot((node("f1", Tier.TIER_FULL), node("f2", Tier.TIER_FULL), node("l1", Tier.TIER_LITE)))


def step(
    *failed: str, level: int = 3, scopes: frozenset[str] = frozenset({"lite", "full"}), policy: str = "auto"
) -> Target:
    features = Features(scopes=scopes, policy=parse_policy(policy))
    decision = decide(features, SNAPSHOT, SETTINGS, 0, random.Random(1))
    situation = Situation(features, decision, SNAPSHOT, SETTINGS, level, failed)
    return next_target(situation, 0, random.Random(1))


def refusal(*failed: str, **options: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        step(*failed, **options)
    return caught.value


def test_first_attempt_is_not_degraded() -> None:
    target = step()
    assert target.degraded_level == 0
    assert target.node_reason == NodeReason.NODE_REASON_HEADROOM


def test_failed_node_is_followed_by_another_of_its_tier() -> None:
    target = step("f1")
    assert target.candidate.address == "f2"
    assert target.node_reason == NodeReason.NODE_REASON_FAILOVER


def test_backup_follows_when_the_tier_is_used_up() -> None:
    target = step("f1", "f2")
    assert target.candidate.address == "l1"
    assert target.degraded_level == 2
    assert target.degraded_reason == DegradedReason.DEGRADED_REASON_NODES_FAILED


def test_caller_that_refuses_the_backup_hears_its_level() -> None:
    error = refusal("f1", "f2", level=1)
    assert error.reason == R.ERROR_REASON_DEGRADED_REFUSED
    assert error.metadata["level"] == "2"


def test_backup_needs_its_scope() -> None:
    error = refusal("f1", "f2", scopes=frozenset({"full"}))
    assert error.reason == R.ERROR_REASON_NO_BACKEND
    assert error.retry_after_ms is not None


def test_forced_tier_is_never_replaced() -> None:
    assert refusal("f1", "f2", policy="full").reason == R.ERROR_REASON_NO_BACKEND


def test_attempts_are_bounded() -> None:
    assert refusal("f1", "f2", "l1").metadata["failed_attempts"] == "3"


def test_interruption_names_the_last_final_frame() -> None:
    error = interrupt(MeshError(R.ERROR_REASON_BACKEND_FAILED, "x"), 7)
    assert error.reason == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert error.metadata["last_seq"] == "7"


@pytest.mark.parametrize("reason", [R.ERROR_REASON_DEADLINE_EXCEEDED, R.ERROR_REASON_CANCELLED])
def test_deadline_and_cancel_stay_what_they_are(reason: ErrorReason.ValueType) -> None:
    error = interrupt(MeshError(reason, "x"), 7)
    assert error.reason == reason
    assert error.metadata["last_seq"] == "7"


def test_every_reason_is_judged() -> None:
    verdicts = {reason: is_node_failure(MeshError(ErrorReason.ValueType(reason), "x")) for reason in REASONS}
    assert verdicts[R.ERROR_REASON_BACKEND_FAILED]
    assert verdicts[R.ERROR_REASON_OVERLOADED]
    assert verdicts[R.ERROR_REASON_INTERNAL]
    assert not verdicts[R.ERROR_REASON_CONTEXT_EXCEEDED]
    assert not verdicts[R.ERROR_REASON_SCHEMA_REFUSED]


def exhausted(*reasons: ErrorReason.ValueType) -> MeshError:
    nothing = MeshError(R.ERROR_REASON_NO_BACKEND, "x", metadata={"failed_attempts": str(len(reasons))})
    waits_ms = (700, 300, 500)
    failures = [MeshError(reason, "x", retry_after_ms=wait) for reason, wait in zip(reasons, waits_ms, strict=False)]
    return name_exhaustion(nothing, failures)


def test_nodes_that_are_all_full_are_no_outage() -> None:
    error = exhausted(R.ERROR_REASON_OVERLOADED, R.ERROR_REASON_OVERLOADED)
    assert (error.reason, error.retry_after_ms) == (R.ERROR_REASON_OVERLOADED, 300)


@pytest.mark.parametrize(
    "reasons", [(), (R.ERROR_REASON_BACKEND_FAILED,), (R.ERROR_REASON_OVERLOADED, R.ERROR_REASON_BACKEND_FAILED)]
)
def test_other_failures_leave_no_backend(reasons: tuple[ErrorReason.ValueType, ...]) -> None:
    assert exhausted(*reasons).reason == R.ERROR_REASON_NO_BACKEND
