"""A node that may serve, as a decision has found it."""

from typing import Final, NamedTuple

from ssop.v1.mesh_pb2 import NodeReason
from ssop_router.core.score import TierSignals

UNSEEN: Final = TierSignals()
"""What is known of a tier that no node serves."""


class Candidate(NamedTuple):
    """A node and a model on it that may serve. `model` "" is the node's first.

    `load` is what candidates are compared by: requests for each slot, and more where something is unknown or bad;
    `risk` is the part of it that recent failures make. `signals` is what a score reads of it.
    """

    address: str
    node: str
    model: str
    load: float
    is_stale: bool
    is_shared_model: bool
    risk: float = 0.0
    signals: TierSignals = UNSEEN
    is_canary: bool = False


Choice = tuple[Candidate | None, NodeReason.ValueType]
"""The node of a tier, None where none can serve, and why it is that one."""
