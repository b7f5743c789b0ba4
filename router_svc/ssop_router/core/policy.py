"""The words of `x-router-policy`: what a caller demands of routing, cache and retrieval."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.errors import MeshError

WORDS: Final = ("auto", "lite", "full", "cache_only", "no_cache", "no_rag", "cascade")
MAX_POLICY_CHARS: Final = 128
TIER_OF_WORD: Final = {"lite": Tier.TIER_LITE, "full": Tier.TIER_FULL}
WORD_OF_TIER: Final = {tier: word for word, tier in TIER_OF_WORD.items()}
_CONTRADICTIONS: Final = (
    ("auto", "lite"),
    ("auto", "full"),
    ("lite", "full"),
    ("cascade", "lite"),
    ("cascade", "full"),
    ("cascade", "cache_only"),
    ("cache_only", "no_cache"),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy whose words agree with each other; `tier` is TIER_UNSPECIFIED unless one is forced."""

    tier: Tier.ValueType = Tier.TIER_UNSPECIFIED
    is_cache_only: bool = False
    is_cache_off: bool = False
    is_rag_off: bool = False
    is_cascade: bool = False
    text: str = "auto"


@lru_cache(256)
def parse_policy(text: str) -> Policy:
    """Parse words joined by commas, in any order and case; none means `auto`. Raises POLICY_INVALID."""
    if len(text) > MAX_POLICY_CHARS:
        raise _invalid(f"a policy has at most {MAX_POLICY_CHARS} characters")
    words = {word.strip().lower() for word in text.split(",")} - {""}
    unknown = words.difference(WORDS)
    if unknown:
        raise _invalid(f"unknown words; the words are {', '.join(WORDS)}")
    for one, other in _CONTRADICTIONS:
        if one in words and other in words:
            raise _invalid(f"'{one}' and '{other}' contradict each other")
    if not words & {"lite", "full", "cascade"}:
        words.add("auto")
    return Policy(
        tier=next((TIER_OF_WORD[w] for w in TIER_OF_WORD if w in words), Tier.TIER_UNSPECIFIED),
        is_cache_only="cache_only" in words,
        is_cache_off="no_cache" in words,
        is_rag_off="no_rag" in words,
        is_cascade="cascade" in words,
        text=",".join(word for word in WORDS if word in words),
    )


def _invalid(description: str) -> MeshError:
    return MeshError(
        ErrorReason.ERROR_REASON_POLICY_INVALID,
        f"policy: {description}",
        fields=[("policy", description)],
    )
