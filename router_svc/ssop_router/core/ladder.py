# cython: annotation_typing=False
"""What comes next when a node failed: another node of the tier, then the rungs below it. Pure.

The commit point is the first field frame. Before it a failure is unseen and the ladder goes on; after it another node
goes on with what has been sent, where one can, else the caller hears which fields are final.

`ladder.pxd` gives the types with which this very file is compiled.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import DegradedReason, NodeReason, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.choice import choose_node
from ssop_router.core.decision import (
    Candidate,
    Decision,
    DecisionSettings,
    Features,
)
from ssop_router.core.snapshot import Snapshot
from ssop_router.core.tuples import make

R = ErrorReason
SIMILAR_LEVEL: Final = 1
BACKUP_LEVEL: Final = 2
CANNED_LEVEL: Final = 3
RETRY_AFTER_MS: Final = 1_000
_NOT_DEGRADED: Final = DegradedReason.DEGRADED_REASON_UNSPECIFIED

# What a node says about the request itself: another node would say the same, and the node is well.
_CALLERS_FAULT: Final = frozenset(
    {
        R.ERROR_REASON_REQUEST_INVALID,
        R.ERROR_REASON_SCHEMA_REFUSED,
        R.ERROR_REASON_CONTEXT_EXCEEDED,
        R.ERROR_REASON_CONTENT_UNSUPPORTED,
        R.ERROR_REASON_LOGPROBS_UNSUPPORTED,
        R.ERROR_REASON_MESSAGE_TOO_LARGE,
        R.ERROR_REASON_SCOPE_MISSING,
        R.ERROR_REASON_OUTPUT_INVALID,
        R.ERROR_REASON_DEADLINE_EXCEEDED,
    }
)


class Target(NamedTuple):
    """Where an attempt goes. `degraded_level` is 0 on the chosen tier."""

    candidate: Candidate
    tier: Tier.ValueType
    node_reason: NodeReason.ValueType
    degraded_level: int = 0
    degraded_reason: DegradedReason.ValueType = _NOT_DEGRADED


class Situation(NamedTuple):
    """What a rung reads. `failed` are the addresses that failed for this request, in order.

    `has_reserve`: an answer of the lite tier is held back already, so none is to be made.
    """

    features: Features
    decision: Decision
    snapshot: Snapshot
    settings: DecisionSettings
    max_degraded_level: int
    failed: tuple[str, ...] = ()
    has_reserve: bool = False


def is_node_failure(error: MeshError) -> bool:
    """Whether another node may do better than the one that sent this error."""
    return error.reason not in _CALLERS_FAULT


def next_target(situation: Situation, now_ms: int, rng: random.Random) -> Target:
    """The next attempt. Raises NO_BACKEND when nothing is left, DEGRADED_REFUSED when only refused levels are."""
    refused_level = 0
    if len(situation.failed) < situation.settings.max_attempts:
        for rung in _RUNGS:
            target = rung(situation, now_ms, rng)
            if target is None:
                continue
            if target.degraded_level <= situation.max_degraded_level:
                return target
            refused_level = refused_level or target.degraded_level
    if refused_level:
        raise refuse_level(refused_level)
    raise MeshError(
        R.ERROR_REASON_NO_BACKEND,
        "no node can serve the request now",
        metadata={"failed_attempts": str(len(situation.failed))},
        retry_after_ms=RETRY_AFTER_MS,
    )


def refuse_level(level: int) -> MeshError:
    """The error for a caller that takes no answer as degraded as the one that is left."""
    return MeshError(
        R.ERROR_REASON_DEGRADED_REFUSED,
        f"only an answer degraded to level {level} is left, and the request refuses it",
        metadata={"level": str(level)},
        retry_after_ms=RETRY_AFTER_MS,
    )


def name_exhaustion(error: MeshError, failures: Sequence[MeshError]) -> MeshError:
    """The error for a caller for whom nothing is left: OVERLOADED where every node that was tried is merely full."""
    if error.reason != R.ERROR_REASON_NO_BACKEND or not failures:
        return error
    if any(failure.reason != R.ERROR_REASON_OVERLOADED for failure in failures):
        return error
    waits_ms = [failure.retry_after_ms for failure in failures if failure.retry_after_ms is not None]
    return MeshError(
        R.ERROR_REASON_OVERLOADED,
        "every node that can serve the request is full",
        metadata=error.metadata,
        retry_after_ms=min(waits_ms, default=RETRY_AFTER_MS),
    )


def deepen(before: Target | None, target: Target) -> Target:
    """The target of a node that goes on with an answer: as degraded as the worst part of it."""
    if before is None or before.degraded_level <= target.degraded_level:
        return target
    return target._replace(degraded_level=before.degraded_level, degraded_reason=before.degraded_reason)


def explain_end(failures: Sequence[MeshError], error: MeshError) -> MeshError:
    """Why an answer that was begun ends: what cut it, and why nobody goes on (`error`: none is left)."""
    cut = failures[0] if failures else error
    refusal = next((failure for failure in failures[1:] if failure.reason == R.ERROR_REASON_UNSUPPORTED), error)
    why = refusal.metadata.get("detail") or refusal.reason_name
    return MeshError(cut.reason, cut.message, metadata={**cut.metadata, "not_continued": why})


def interrupt(error: MeshError, last_seq: int) -> MeshError:
    """The error for a caller that has fields already; frames up to `last_seq` are final."""
    if error.reason in (R.ERROR_REASON_DEADLINE_EXCEEDED, R.ERROR_REASON_CANCELLED):
        return MeshError(error.reason, error.message, metadata={**error.metadata, "last_seq": str(last_seq)})
    return MeshError(
        R.ERROR_REASON_GENERATION_INTERRUPTED,
        "the generation was cut after fields had been sent",
        metadata={"last_seq": str(last_seq), "cause": error.reason_name, **_reason_not_continued(error)},
    )


def _reason_not_continued(error: MeshError) -> dict[str, str]:
    why = error.metadata.get("not_continued")
    return {"not_continued": why} if why else {}


def _same_tier(situation: Situation, now_ms: int, rng: random.Random) -> Target | None:
    tier = situation.decision.tier
    candidate, reason = _find(situation, tier, now_ms, rng)
    if candidate is None:
        return None
    return make(Target, (candidate, tier, reason, 0, _NOT_DEGRADED))


def _backup_tier(situation: Situation, now_ms: int, rng: random.Random) -> Target | None:
    tier = Tier.TIER_LITE
    if situation.has_reserve or situation.decision.tier == tier or "lite" not in situation.features.scopes:
        return None
    if situation.decision.tier_reason == TierReason.TIER_REASON_POLICY_FORCED:
        # Who forces a tier gets it or an error.
        return None
    candidate, reason = _find(situation, tier, now_ms, rng)
    if candidate is None:
        return None
    why = (
        DegradedReason.DEGRADED_REASON_NODES_FAILED
        if situation.failed
        else DegradedReason.DEGRADED_REASON_NODES_UNAVAILABLE
    )
    return Target(candidate, tier, reason, BACKUP_LEVEL, why)


# In order of the ladder; a rung that has nothing to offer returns None.
_RUNGS: Final[Sequence[Callable[[Situation, int, random.Random], Target | None]]] = (
    _same_tier,
    _backup_tier,
)


def _find(
    situation: Situation, tier: Tier.ValueType, now_ms: int, rng: random.Random
) -> tuple[Candidate | None, NodeReason.ValueType]:
    features, _, snapshot, settings, _, failed, _ = situation
    candidate, reason = choose_node(
        features, snapshot, settings, tier, now_ms=now_ms, rng=rng, failed=frozenset(failed)
    )
    if candidate is not None and failed:
        reason = NodeReason.NODE_REASON_FAILOVER
    return candidate, reason
