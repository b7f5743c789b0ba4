import random
from collections.abc import Set

from ssop.v1.mesh_pb2 import NodeReason, Tier
from ssop_router.core.candidate import Candidate
from ssop_router.core.complexity import Complexity
from ssop_router.core.request import DecisionSettings, Features
from ssop_router.core.score import Score, ScoreSettings, TierSignals
from ssop_router.core.snapshot import Snapshot

def choose_node(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    tier: Tier.ValueType,
    *,
    now_ms: int,
    rng: random.Random,
    failed: Set[str] = ...,
) -> tuple[Candidate | None, NodeReason.ValueType]: ...
def add_up(
    complexity: Complexity, lite: TierSignals, full: TierSignals, settings: ScoreSettings, pinned: Tier.ValueType
) -> Score | None: ...
