"""What the router knows of its nodes at one moment, immutable, with the age of everything."""

from dataclasses import dataclass, field

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import ConstraintMode, Tier


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model as its node last described it. `context_tokens` and `slots_total` are 0 while unknown."""

    name: str
    state: ModelState.ValueType
    tiers: frozenset[Tier.ValueType]
    context_tokens: int = 0
    slots_total: int = 0
    slots_busy: float = 0.0
    queue_length: float = 0.0
    capabilities: frozenset[str] = field(default_factory=frozenset)
    has_logprobs: bool = False
    constraint_mode: ConstraintMode.ValueType = ConstraintMode.CONSTRAINT_MODE_UNSPECIFIED


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `seen_at_ms` is when its last status arrived, None before the first one.

    `expected_tiers` come from the settings and speak only while no status has arrived; empty means any tier.
    `in_flight` counts this router's own requests. `memory_free_ratio` is from 0 to 1, None while unknown.
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

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the last status in milliseconds, at least 0; None before the first one."""
        return None if self.seen_at_ms is None else max(0, now_ms - self.seen_at_ms)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All configured nodes, in the order of the settings."""

    nodes: tuple[NodeView, ...] = ()
