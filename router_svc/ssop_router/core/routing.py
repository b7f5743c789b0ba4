"""What each node of a tier is to a request, and why none of them may serve it. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.choice import choose_node
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.snapshot import ModelView, NodeView, Snapshot

_READY: Final = ModelState.MODEL_STATE_READY
_EJECTED: Final = "ejected"
_STATE: Final = "state"
_CONTEXT: Final = "context"
_CAPABILITY: Final = "capability"
_LOGPROBS: Final = "logprobs"
_TIER: Final = "tier"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a decision makes of a node for a tier. `fault` names the filter that takes it out; empty: it may serve."""

    address: str
    node: str
    tier: Tier.ValueType
    model: str
    fault: str
    load: float
    success: float
    status_age_ms: int | None
    limit_tokens: int = 0


def judge_nodes(
    features: Features, snapshot: Snapshot, settings: DecisionSettings, tier: Tier.ValueType, now_ms: int
) -> Iterator[Verdict]:
    """Every node, in the order of the settings."""
    for node in snapshot.nodes:
        alone = Snapshot((node,))
        # One node has no ties to break.
        candidate, _ = choose_node(features, alone, settings, tier, now_ms=now_ms, rng=random.Random(0))  # noqa: S311
        success = node.successes.estimate(now_ms).value
        fault = "" if candidate is not None else find_fault(features, node, tier)
        limit_tokens = max((model.context_tokens for model in node.models if tier in model.tiers), default=0)
        yield Verdict(
            node.address,
            node.name,
            tier,
            candidate.model if candidate is not None else "",
            fault,
            candidate.load if candidate is not None else 0.0,
            success,
            node.age_ms(now_ms),
            limit_tokens,
        )


def find_fault(features: Features, node: NodeView, tier: Tier.ValueType) -> str:
    """The filter that takes a node out; empty where none does."""
    if node.is_ejected:
        return _EJECTED
    if node.seen_at_ms is None:
        return _TIER if node.expected_tiers and tier not in node.expected_tiers else ""
    faults = [_fault(features, model) for model in node.models if tier in model.tiers]
    if not faults:
        return _TIER
    return "" if "" in faults else faults[0]


def _fault(features: Features, model: ModelView) -> str:
    if model.state != _READY:
        return _STATE
    needed = features.least_input_tokens + features.max_output_tokens
    if 0 < model.context_tokens < needed:
        return _CONTEXT
    if not features.capabilities <= model.capabilities:
        return _CAPABILITY
    if features.needs_logprobs and not model.has_logprobs:
        return _LOGPROBS
    return ""


def _faults_of(features: Features, snapshot: Snapshot, tier: Tier.ValueType) -> set[str]:
    return {fault for node in snapshot.nodes if (fault := find_fault(features, node, tier)) not in ("", _TIER)}


def name_loss(features: Features, snapshot: Snapshot, tier: Tier.ValueType) -> TierReason.ValueType:
    """Why a request goes to the other tier, where no node of this one can serve it."""
    faults = _faults_of(features, snapshot, tier)
    if faults == {_CONTEXT}:
        return TierReason.TIER_REASON_CONTEXT_FIT
    if faults and faults <= {_CAPABILITY, _LOGPROBS}:
        return TierReason.TIER_REASON_CAPABILITY
    return TierReason.TIER_REASON_OTHER_UNAVAILABLE


def has_tier(snapshot: Snapshot, tier: Tier.ValueType) -> bool:
    """Whether the mesh has a node of a tier, well or not."""
    return any(tier in model.tiers for node in snapshot.nodes for model in node.models) or any(
        node.seen_at_ms is None and (not node.expected_tiers or tier in node.expected_tiers) for node in snapshot.nodes
    )


def refuse_if_never(features: Features, snapshot: Snapshot, tier: Tier.ValueType) -> None:
    """Raise where waiting would not help: every node refuses what the request itself asks for."""
    faults = _faults_of(features, snapshot, tier)
    if faults == {_CONTEXT}:
        limits = [model.context_tokens for node in snapshot.nodes for model in node.models if tier in model.tiers]
        raise MeshError(
            ErrorReason.ERROR_REASON_CONTEXT_EXCEEDED,
            "the prompt and the answer do not fit any model that may serve them",
            metadata={"limit_tokens": str(max(limits)), "input_tokens": str(features.least_input_tokens)},
        )
    if faults == {_CAPABILITY}:
        raise MeshError(
            ErrorReason.ERROR_REASON_CONTENT_UNSUPPORTED,
            "no model that may serve the request can take its parts or tools",
            metadata={"needs": ",".join(sorted(features.capabilities))},
        )
    if faults == {_LOGPROBS}:
        raise MeshError(
            ErrorReason.ERROR_REASON_LOGPROBS_UNSUPPORTED,
            "no model that may serve the request gives log-probabilities",
        )
