"""Which node of a tier serves a request: filters first, then the least load. Pure."""

import math
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import NodeReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.score import TierSignals
from ssop_router.core.snapshot import STALE_PENALTY, ModelView, NodeView, Route, Row, Snapshot

_READY: Final = ModelState.MODEL_STATE_READY
# Looking a name up in an enum of protobuf costs as much as comparing a node.
_UNDECIDED: Final = NodeReason.NODE_REASON_UNSPECIFIED
_ONLY_ONE: Final = NodeReason.NODE_REASON_ONLY_ONE
_STATUS_STALE: Final = NodeReason.NODE_REASON_STATUS_STALE
_SUCCESS: Final = NodeReason.NODE_REASON_SUCCESS
_HEADROOM: Final = NodeReason.NODE_REASON_HEADROOM
# How much busier than its numbers a node counts, in full loads.
_LOW_MEMORY_PENALTY: Final = 1.0
# What a status is taken to be off by just before it counts as old, in full loads; and once it does.
_AGEING_SPREAD: Final = 0.2
_STALE_SPREAD: Final = 0.5

_EJECTED: Final = "ejected"
_STATE: Final = "state"
_CONTEXT: Final = "context"
_CAPABILITY: Final = "capability"
_LOGPROBS: Final = "logprobs"
_TIER: Final = "tier"


class Candidate(NamedTuple):
    """A node and a model on it that may serve. `model` "" is the node's first.

    `load` is what candidates are compared by: requests for each slot, and more where something is unknown or bad;
    `risk` is the part of it that recent failures make.
    """

    address: str
    node: str
    model: str
    load: float
    is_stale: bool
    is_shared_model: bool
    risk: float = 0.0
    route: Route | None = None
    is_canary: bool = False


def choose_node(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    *,
    now_ms: int,
    rng: random.Random,
    failed: Set[str] = frozenset(),
) -> tuple[Candidate | None, NodeReason.ValueType]:
    """The node of a tier with the least load that passes every filter; `rng` breaks ties.

    Addresses in `failed` are left out.
    """
    rows = _fitting(features, snapshot, tier, failed)
    if not rows:
        return None, _UNDECIDED
    is_canary = False
    for canary in settings.canaries:
        if canary.tier == tier:
            rows, is_canary = _split_canary(rows, canary.model, is_met=canary.model in features.canaries)
    best, least, is_fresh, is_by_success = _compare(rows, settings, now_ms)
    row = best[0] if len(best) == 1 else rng.choice(best)
    route = row.route
    is_stale = row.fresh_at_ms < now_ms - settings.status_stale_ms
    risk = route.successes.risk(now_ms) if row.has_failures else 0.0
    chosen = Candidate(
        route.address, route.node, route.model, least, is_stale, route.is_shared_model, risk, route, is_canary
    )
    # The rows of a node stand together.
    if rows[0].route.address == rows[-1].route.address:
        return chosen, _ONLY_ONE
    if not is_fresh:
        return chosen, _STATUS_STALE
    return chosen, _SUCCESS if is_by_success else _HEADROOM


def _fitting(features: Features, snapshot: Snapshot, tier: Tier.ValueType, failed: Set[str]) -> Sequence[Row]:
    """The rows that pass the filters of a request. A node that was never seen passes what nobody knows about it."""
    offer = snapshot.offer(tier)
    rows: Sequence[Row] = offer.rows
    if failed:
        rows = [row for row in rows if row.route.address not in failed]
    needed = features.least_input_tokens + features.max_output_tokens
    if needed > offer.least_context:
        rows = [row for row in rows if not 0 < row.route.context_tokens < needed]
    if capabilities := features.capabilities:
        rows = [row for row in rows if row.route.measured_at_ms is None or capabilities <= row.route.capabilities]
    if features.needs_logprobs:
        rows = [row for row in rows if row.route.has_logprobs]
    return rows


def _split_canary(rows: Sequence[Row], model: str, *, is_met: bool) -> tuple[Sequence[Row], bool]:
    """The rows of a model on trial, or the others; and whether it is the former. A side with no row is no choice."""
    trial = [row for row in rows if row.route.model == model]
    others = [row for row in rows if row.route.model != model]
    if trial and (is_met or not others):
        return trial, True
    return others, False


def _compare(rows: Sequence[Row], settings: DecisionSettings, now_ms: int) -> tuple[list[Row], float, bool, bool]:
    """The rows with the least load, that load, whether any row is fresh, and whether a risk kept a lower load out."""
    fresh_from_ms, low_memory = now_ms - settings.status_stale_ms, settings.low_memory_ratio
    least = least_plain = plain_of_best = math.inf
    best: list[Row] = []
    is_any_fresh = False
    for row in rows:
        fresh_at_ms, load, own_load, memory, has_failures, route = row
        if fresh_at_ms >= fresh_from_ms:
            is_any_fresh = True
        else:
            load = own_load + STALE_PENALTY
        if memory < low_memory:
            load += _LOW_MEMORY_PENALTY
        plain = load
        if plain < least_plain:  # noqa: PLR1730 - a call costs as much as the comparison of a row
            least_plain = plain
        if has_failures:
            load += route.successes.risk(now_ms)
        if load < least:
            least, plain_of_best = load, plain
            best = [row]
        elif load == least and best[-1].route.address != route.address:
            best.append(row)
    return best, least, is_any_fresh, plain_of_best > least_plain


def read_signals(candidate: Candidate | None, settings: DecisionSettings, now_ms: int) -> TierSignals:
    """Head-room and success of the node that a tier would use."""
    if candidate is None or candidate.route is None:
        return TierSignals()
    route = candidate.route
    success, spread = route.successes.estimate(now_ms)
    success_age_ms = route.successes.age_ms(now_ms)
    measured_at_ms = route.measured_at_ms
    if candidate.is_stale:
        # What this router itself has put there is all that is known.
        headroom = max(0.0, 1.0 - route.own_load)
        age_ms = None if measured_at_ms is None else max(0, now_ms - measured_at_ms)
        weakness = "unseen" if measured_at_ms is None else "stale"
        return TierSignals(headroom, _STALE_SPREAD, age_ms, weakness, success, spread, success_age_ms)
    age_ms = max(0, now_ms - measured_at_ms) if measured_at_ms is not None else 0
    # Caution says who of a tier is asked, not how much room there is.
    headroom = max(0.0, 1.0 - (candidate.load - candidate.risk - route.caution))
    headroom_spread = _AGEING_SPREAD * age_ms / settings.status_stale_ms
    return TierSignals(headroom, headroom_spread, age_ms, "", success, spread, success_age_ms)


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
