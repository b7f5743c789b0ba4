"""What the router knows of its nodes at one moment, with the age of everything; never changed once it is made."""

from typing import Any, Final, NamedTuple

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import ConstraintMode, Tier
from ssop_router.core.success import NO_OUTCOMES, SuccessView

# How much busier than its numbers a node counts, in full loads: for what is not known about it, where it has little
# memory left, and where it turns requests away, so that it is asked only where no other is left.
STALE_PENALTY: Final = 1.0
UNSEEN_PENALTY: Final = 2.0
LOW_MEMORY_PENALTY: Final = 1.0
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


class _Node(NamedTuple):
    address: str
    name: str = ""
    models: tuple[ModelView, ...] = ()
    seen_at_ms: int | None = None
    is_connected: bool = False
    in_flight: int = 0
    memory_free_ratio: float | None = None
    expected_tiers: frozenset[Tier.ValueType] = frozenset()
    is_ejected: bool = False
    ejection_reason: str = ""
    successes: SuccessView = NO_OUTCOMES
    weight: float = 1.0
    limit: int = 2**31


class NodeView(_Node):
    """A node. `seen_at_ms` is when its last status arrived, None before the first one.

    `expected_tiers` come from the settings and speak only while no status has arrived; empty means any tier.
    `in_flight` counts this router's own requests. `memory_free_ratio` is from 0 to 1, None while unknown.
    `successes` is how this router's attempts at it ended. `weight` is its share of a full load, from 0 to 1; beyond
    `limit` requests of this router it turns more away.
    """

    offer: Any = None
    """What follows from the fields for a choice (`core/choice.py`), worked out once for all snapshots that hold it."""

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the last status in milliseconds, at least 0; None before the first one."""
        return None if self.seen_at_ms is None else max(0, now_ms - self.seen_at_ms)


class Snapshot(NamedTuple):
    """All configured nodes, in the order of the settings."""

    nodes: tuple[NodeView, ...] = ()
