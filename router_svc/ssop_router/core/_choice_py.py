"""The twin of `_choice.pyx`, for where that is not built: the same decisions to the last bit, and what it is held to.

What a node offers is worked out once for each view of it; a choice then only compares numbers.
"""

import math
import random
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import NodeReason, Tier
from ssop_router.core.candidate import UNSEEN, Candidate, Choice
from ssop_router.core.complexity import Complexity
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.score import (
    AGEING_SPREAD,
    STALE_SPREAD,
    Score,
    ScoreSettings,
    TierSignals,
)
from ssop_router.core.snapshot import (
    FULL_PENALTY,
    LOW_MEMORY_PENALTY,
    STALE_PENALTY,
    UNSEEN_PENALTY,
    NodeView,
    Snapshot,
)
from ssop_router.core.success import SuccessView

# Looking a name up in an enum of protobuf costs as much as comparing a node.
_LITE: Final = Tier.TIER_LITE
_BOTH_TIERS: Final = frozenset({Tier.TIER_LITE, Tier.TIER_FULL})
_READY: Final = ModelState.MODEL_STATE_READY
_UNDECIDED: Final = NodeReason.NODE_REASON_UNSPECIFIED
_ONLY_ONE: Final = NodeReason.NODE_REASON_ONLY_ONE
_STATUS_STALE: Final = NodeReason.NODE_REASON_STATUS_STALE
_SUCCESS: Final = NodeReason.NODE_REASON_SUCCESS
_HEADROOM: Final = NodeReason.NODE_REASON_HEADROOM


class _Row(NamedTuple):
    """A ready model on a node in rotation. Loads are in requests for each slot.

    `load` is the larger of what the node says, which is late, and what this router counts, which is partial;
    `own_load` is the latter, and `stale_load` what it counts as while nothing fresh is known. `caution` is the part of
    `load` by which a node that returns counts as busier than it is.
    `measured_at_ms` is when the load was measured, and `fresh_at_ms` as well, but long ago where the node is not
    connected. A node that was never seen has None there and the model "", and nothing that it lacks.
    """

    address: str
    node: str
    model: str
    tiers: frozenset[Tier.ValueType]
    context_tokens: int
    capabilities: frozenset[str]
    has_logprobs: bool
    fresh_at_ms: float
    measured_at_ms: int | None
    load: float
    own_load: float
    stale_load: float
    caution: float
    memory_free_ratio: float
    successes: SuccessView
    is_shared_model: bool


def choose_node(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    *,
    now_ms: int,
    rng: random.Random,
    failed: Set[str] = frozenset(),
) -> Choice:
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
    chosen = _describe(row, least, settings.status_stale_ms, now_ms, is_canary=is_canary)
    # The rows of a node stand together.
    if rows[0].address == rows[-1].address:
        return chosen, _ONLY_ONE
    if not is_fresh:
        return chosen, _STATUS_STALE
    return chosen, _SUCCESS if is_by_success else _HEADROOM


def choose_both(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    *,
    now_ms: int,
    rng: random.Random,
    complexity: Complexity,
) -> tuple[Choice, Choice, Score | None]:
    """The nodes of the lite and of the full tier, chosen in this order, and what they and the complexity add up to."""
    lite = choose_node(features, snapshot, settings, Tier.TIER_LITE, now_ms=now_ms, rng=rng)
    full = choose_node(features, snapshot, settings, Tier.TIER_FULL, now_ms=now_ms, rng=rng)
    return lite, full, add_up(complexity, _signals(lite), _signals(full), settings.score, features.conversation_tier)


def _signals(choice: Choice) -> TierSignals:
    candidate, _ = choice
    return candidate.signals if candidate is not None else UNSEEN


def _fitting(features: Features, snapshot: Snapshot, tier: Tier.ValueType, failed: Set[str]) -> Sequence[_Row]:
    """The rows that pass the filters of a request. A node that was never seen passes what nobody knows about it."""
    needed, capabilities = features.least_input_tokens + features.max_output_tokens, features.capabilities
    return [
        row
        for node in snapshot.nodes
        if node.address not in failed
        for row in _offer(node)
        if tier in row.tiers
        and not 0 < row.context_tokens < needed
        and (row.measured_at_ms is None or capabilities <= row.capabilities)
        and (row.has_logprobs or not features.needs_logprobs)
    ]


def _offer(node: NodeView) -> Sequence[_Row]:
    rows: Sequence[_Row] | None = node.offer
    if rows is None:
        rows = node.offer = tuple(_rows(node))
    return rows


def _rows(node: NodeView) -> Iterator[_Row]:
    """The models that serve at all."""
    if node.is_ejected:
        return
    memory = 1.0 if node.memory_free_ratio is None else node.memory_free_ratio
    if node.seen_at_ms is None:
        own_load = _own_load(node, 1, node.weight)
        yield _Row(
            node.address,
            node.name,
            "",
            node.expected_tiers or _BOTH_TIERS,
            0,
            frozenset(),
            True,
            -math.inf,
            None,
            own_load,
            own_load,
            own_load + UNSEEN_PENALTY,
            0.0,
            memory,
            node.successes,
            False,
        )
        return
    for model in node.models:
        if model.state != _READY:
            continue
        slots = model.slots_total or 1
        own_load = _own_load(node, slots, node.weight)
        said_load = (model.slots_busy + model.queue_length) / slots
        # In this order, so that what is no number counts for nothing.
        load = max(own_load, said_load)
        caution = load - max(_own_load(node, slots, 1.0), said_load) if node.weight < 1 else 0.0
        measured_at_ms = node.seen_at_ms - model.load_age_ms
        yield _Row(
            node.address,
            node.name,
            model.name,
            model.tiers,
            model.context_tokens,
            model.capabilities,
            model.has_logprobs,
            measured_at_ms if node.is_connected else -math.inf,
            measured_at_ms,
            load,
            own_load,
            own_load + STALE_PENALTY,
            caution,
            memory,
            node.successes,
            model.tiers >= _BOTH_TIERS,
        )


def _own_load(node: NodeView, slots: int, weight: float) -> float:
    """This router's requests for each slot; more where the node is to get less than others, or turns more away."""
    load = ((node.in_flight + 1) / weight - 1) / slots
    return load + FULL_PENALTY if node.in_flight >= node.limit else load


def _split_canary(rows: Sequence[_Row], model: str, *, is_met: bool) -> tuple[Sequence[_Row], bool]:
    """The rows of a model on trial, or the others; and whether it is the former. A side with no row is no choice."""
    trial = [row for row in rows if row.model == model]
    others = [row for row in rows if row.model != model]
    if trial and (is_met or not others):
        return trial, True
    return others, False


def _compare(rows: Sequence[_Row], settings: DecisionSettings, now_ms: int) -> tuple[list[_Row], float, bool, bool]:
    """The rows with the least load, that load, whether any row is fresh, and whether a risk kept a lower load out."""
    fresh_from_ms = now_ms - settings.status_stale_ms
    least = least_plain = plain_of_best = math.inf
    best: list[_Row] = []
    is_any_fresh = False
    for row in rows:
        is_fresh = row.fresh_at_ms >= fresh_from_ms
        is_any_fresh = is_any_fresh or is_fresh
        plain = row.load if is_fresh else row.stale_load
        if row.memory_free_ratio < settings.low_memory_ratio:
            plain += LOW_MEMORY_PENALTY
        least_plain = min(least_plain, plain)
        load = plain + row.successes.risk(now_ms)
        if load < least or not best:
            least, plain_of_best = load, plain
            best = [row]
        elif load == least and best[-1].address != row.address:
            best.append(row)
    return best, least, is_any_fresh, plain_of_best > least_plain


def _describe(row: _Row, load: float, stale_ms: int, now_ms: int, *, is_canary: bool) -> Candidate:
    is_stale = row.fresh_at_ms < now_ms - stale_ms
    risk = row.successes.risk(now_ms)
    success, spread = row.successes.estimate(now_ms)
    success_age_ms = row.successes.age_ms(now_ms)
    age_ms = None if row.measured_at_ms is None else max(0, now_ms - row.measured_at_ms)
    if is_stale or age_ms is None:
        # What this router itself has put there is all that is known.
        headroom = max(0.0, 1.0 - row.own_load)
        weakness = "unseen" if age_ms is None else "stale"
        signals = TierSignals(headroom, STALE_SPREAD, age_ms, weakness, success, spread, success_age_ms)
    else:
        # Caution says who of a tier is asked, not how much room there is.
        headroom = max(0.0, 1.0 - (load - risk - row.caution))
        signals = TierSignals(headroom, AGEING_SPREAD * age_ms / stale_ms, age_ms, "", success, spread, success_age_ms)
    return Candidate(row.address, row.node, row.model, load, is_stale, row.is_shared_model, risk, signals, is_canary)


def add_up(
    complexity: Complexity, lite: TierSignals, full: TierSignals, settings: ScoreSettings, pinned: Tier.ValueType
) -> Score | None:
    """The score; None where the classifier abstains. `pinned` is the tier of the conversation."""
    alone = complexity.score
    if alone is None or math.isnan(alone):
        return None
    by_headroom, by_success = settings.headroom_weight, settings.success_weight
    value = alone + by_headroom * (full.headroom - lite.headroom) + by_success * (full.success - lite.success)
    spread = (
        settings.doubt_weight * complexity.spread
        + (
            by_headroom * (full.headroom_spread + lite.headroom_spread)
            + by_success * (full.success_spread + lite.success_spread)
        )
        / 2
    )
    threshold = settings.threshold
    if pinned:
        threshold = min(1.0, threshold + (settings.hysteresis if pinned == _LITE else -settings.hysteresis))
    if value < 0.0 or value > 1.0:
        value = min(1.0, max(0.0, value))
    return Score(value, spread, threshold, complexity, lite, full, settings)
