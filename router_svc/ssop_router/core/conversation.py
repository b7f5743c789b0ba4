"""Which tier a conversation is on, and how often it has changed. Pure."""

from dataclasses import dataclass
from typing import Final

from ssop.v1.mesh_pb2 import Tier, TierReason

MAX_SWITCHES: Final = 1
# What the content or the caller demands moves a conversation without counting as a change of mind.
_DEMANDS: Final = frozenset({TierReason.TIER_REASON_CONTEXT_FIT, TierReason.TIER_REASON_CAPABILITY})
# These say something about one request or one moment, not about the conversation.
_PASSING: Final = frozenset(
    {
        TierReason.TIER_REASON_POLICY_FORCED,
        TierReason.TIER_REASON_MODEL_NAMED,
        TierReason.TIER_REASON_SCOPE,
        TierReason.TIER_REASON_OTHER_UNAVAILABLE,
        TierReason.TIER_REASON_CASCADE,
        TierReason.TIER_REASON_CASCADE_LITE,
    }
)
# A conversation that begins with one of these is on no tier yet.
_OPEN: Final = frozenset(
    {
        TierReason.TIER_REASON_OTHER_UNAVAILABLE,
        TierReason.TIER_REASON_CASCADE,
        TierReason.TIER_REASON_CASCADE_LITE,
    }
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as its last request left it. `at_ms` is when that was."""

    tier: Tier.ValueType
    switches: int
    at_ms: int


def advance(
    before: Conversation | None, tier: Tier.ValueType, reason: TierReason.ValueType, now_ms: int
) -> Conversation | None:
    """The conversation after a decision. A forced tier moves none, but one that begins with it stays on it."""
    if before is None:
        return None if reason in _OPEN else Conversation(tier, 0, now_ms)
    if tier == before.tier or reason in _PASSING:
        return Conversation(before.tier, before.switches, now_ms)
    return Conversation(tier, before.switches + (reason not in _DEMANDS), now_ms)
