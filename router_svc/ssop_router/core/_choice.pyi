import random
from collections.abc import Set

from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.candidate import Choice
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
) -> Choice: ...
def choose_both(
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    *,
    now_ms: int,
    rng: random.Random,
    complexity: Complexity,
) -> tuple[Choice, Choice, Score | None]: ...
def add_up(
    complexity: Complexity, lite: TierSignals, full: TierSignals, settings: ScoreSettings, pinned: Tier.ValueType
) -> Score | None: ...
