"""What the router knows of its nodes at one moment, immutable, with the age of everything."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import ConstraintMode, Tier
from ssop_router.core.success import NO_OUTCOMES, SuccessView

# Looking a name up in an enum of protobuf costs as much as the rest of a filter.
_READY: Final = ModelState.MODEL_STATE_READY
_UNBOUNDED: Final = 2**63
_LITE: Final = Tier.TIER_LITE
_FULL: Final = Tier.TIER_FULL
_BOTH_TIERS: Final = frozenset({_LITE, _FULL})
# How much busier than its numbers a node counts, in full loads, for what is not known about it.
STALE_PENALTY: Final = 1.0
UNSEEN_PENALTY: Final = 2.0
# A node that turns requests away is asked only where no other is left.
FULL_PENALTY: Final = 8.0


class ModelView(NamedTuple):
    """A model as its node last described it. `context_tokens` and `slots_total` are 0 while unknown.

    `load_age_ms` is how old its load already was when the status arrived.
    """

    name: str
    state: ModelState.ValueType
    tiers: frozenset[Tier.ValueType]
    context_tokens: int = 0
    slots_total: int = 0
    slots_busy: float = 0.0
    queue_length: float = 0.0
    capabilities: frozenset[str] = frozenset()
    has_logprobs: bool = False
    constraint_mode: ConstraintMode.ValueType = ConstraintMode.CONSTRAINT_MODE_UNSPECIFIED
    load_age_ms: int = 0


class Route(NamedTuple):
    """A ready model on a node in rotation. Loads are in requests for each slot.

    `load` is the larger of what the node says, which is late, and what this router counts, which is partial;
    `own_load` is the latter. `caution` is the part of `load` by which a node that returns counts as busier than it is.
    `measured_at_ms` is when the load was measured. A node that was never seen has None there
    and the model "", and nothing that it lacks.
    """

    address: str
    node: str
    model: str
    context_tokens: int
    capabilities: frozenset[str]
    has_logprobs: bool
    load: float
    own_load: float
    measured_at_ms: int | None
    successes: SuccessView
    is_shared_model: bool
    caution: float


class Row(NamedTuple):
    """A route with what a comparison reads of it, in the order in which it is unpacked.

    `fresh_at_ms` is when the load was measured, and long ago where the node is not connected.
    """

    fresh_at_ms: float
    load: float
    own_load: float
    memory_free_ratio: float
    has_failures: bool
    route: Route


class Offer(NamedTuple):
    """The models of one tier, on a node or on all, before a request's own needs are looked at.

    `least_context` is the smallest context that is known, in tokens: what needs no more fits everywhere.
    """

    rows: tuple[Row, ...] = ()
    least_context: int = _UNBOUNDED


_NO_OFFER: Final = Offer()


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `seen_at_ms` is when its last status arrived, None before the first one.

    `expected_tiers` come from the settings and speak only while no status has arrived; empty means any tier.
    `in_flight` counts this router's own requests. `memory_free_ratio` is from 0 to 1, None while unknown.
    `successes` is how this router's attempts at it ended. `weight` is its share of a full load, from 0 to 1; beyond
    `limit` requests of this router it turns more away.
    """

    address: str
    name: str = ""
    models: tuple[ModelView, ...] = ()
    seen_at_ms: int | None = None
    is_connected: bool = False
    in_flight: int = 0
    memory_free_ratio: float | None = None
    expected_tiers: frozenset[Tier.ValueType] = field(default_factory=frozenset)
    is_ejected: bool = False
    ejection_reason: str = ""
    successes: SuccessView = NO_OUTCOMES
    weight: float = 1.0
    limit: int = 2**31
    # What follows from the fields is worked out once for all snapshots that hold the same view.
    _memo: dict[Tier.ValueType, Offer] = field(default_factory=dict, init=False, compare=False, repr=False)

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the last status in milliseconds, at least 0; None before the first one."""
        return None if self.seen_at_ms is None else max(0, now_ms - self.seen_at_ms)

    def offer(self, tier: Tier.ValueType) -> Offer:
        """The models on it that may serve a tier."""
        found = self._memo.get(tier)
        if found is None:
            _work_out(self, self._memo)
            found = self._memo[tier] = self._memo.get(tier, _NO_OFFER)
        return found


def _own_load(node: NodeView, slots: int, weight: float) -> float:
    """This router's requests for each slot; more where the node is to get less than others, or turns more away."""
    load = ((node.in_flight + 1) / weight - 1) / slots
    return load + FULL_PENALTY if node.in_flight >= node.limit else load


def _work_out(node: NodeView, found: dict[Tier.ValueType, Offer]) -> None:
    """What a node offers for each tier."""
    found[_LITE] = found[_FULL] = _NO_OFFER
    for tiers, row in _rows(node):
        tokens = row.route.context_tokens or _UNBOUNDED
        for tier in tiers:
            rows, least_context = found.get(tier, _NO_OFFER)
            found[tier] = Offer((*rows, row), min(least_context, tokens))


def _rows(node: NodeView) -> Iterator[tuple[frozenset[Tier.ValueType], Row]]:
    """The models that serve at all, each with its tiers."""
    if node.is_ejected:
        return
    memory = 1.0 if node.memory_free_ratio is None else node.memory_free_ratio
    has_failures = node.successes.failures > 0
    if node.seen_at_ms is None:
        own_load = _own_load(node, 1, node.weight)
        route = Route(
            node.address, node.name, "", 0, frozenset(), True, own_load, own_load, None, node.successes, False, 0.0
        )
        row = Row(-math.inf, own_load, own_load + UNSEEN_PENALTY - STALE_PENALTY, memory, has_failures, route)
        yield node.expected_tiers or _BOTH_TIERS, row
        return
    for model in node.models:
        if model.state != _READY:
            continue
        slots = model.slots_total or 1
        own_load = _own_load(node, slots, node.weight)
        said_load = (model.slots_busy + model.queue_length) / slots
        load = max(said_load, own_load)
        caution = load - max(said_load, _own_load(node, slots, 1.0)) if node.weight < 1 else 0.0
        measured_at_ms = node.seen_at_ms - model.load_age_ms
        route = Route(
            node.address,
            node.name,
            model.name,
            model.context_tokens,
            model.capabilities,
            model.has_logprobs,
            load,
            own_load,
            measured_at_ms,
            node.successes,
            model.tiers >= _BOTH_TIERS,
            caution,
        )
        fresh_at_ms = measured_at_ms if node.is_connected else -math.inf
        yield model.tiers, Row(fresh_at_ms, load, own_load, memory, has_failures, route)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All configured nodes, in the order of the settings."""

    nodes: tuple[NodeView, ...] = ()
    _memo: dict[Tier.ValueType, Offer] = field(default_factory=dict, init=False, compare=False, repr=False)

    def offer(self, tier: Tier.ValueType) -> Offer:
        """The models on all nodes that may serve a tier; those of a node stand together."""
        found = self._memo.get(tier)
        if found is None:
            found = self._memo[tier] = _join(self.nodes, tier)
        return found


def _join(nodes: tuple[NodeView, ...], tier: Tier.ValueType) -> Offer:
    # Nearly all nodes have worked theirs out: asking each by a call would cost more than all else here.
    offers = [node._memo.get(tier) or node.offer(tier) for node in nodes]  # noqa: SLF001
    offers = [offer for offer in offers if offer.rows]
    if len(offers) == 1:
        return offers[0]
    rows = tuple(chain.from_iterable([offer.rows for offer in offers]))
    return Offer(rows, min([offer.least_context for offer in offers], default=_UNBOUNDED))
