"""Which of the nodes that should go do go: caps, the last of a tier, and faults that all share. Pure.

Per tier at most half of the nodes are out, counted with the candidate (envoyproxy/envoy #27066 counts without it, and
loses small clusters). Rules that speak about most nodes of a tier at once speak about something that they share, and
eject none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop_router.core.breaker import Breaker, Phase, Trip

# Faults that show in the outcomes of requests; a node that is gone or killed is so by itself.
_BY_OUTCOMES: Final = frozenset({Trip.SLOW, Trip.CONSECUTIVE, Trip.BURST})
# Nodes that have not said which tiers they serve are judged among themselves.
_UNKNOWN: Final = frozenset({0})


class Verdict(StrEnum):
    """What came of a proposal to eject."""

    EJECTED = "ejected"
    CAPPED = "too_many_out"
    LAST = "last_of_its_tier"
    SHARED = "shared_cause"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """`max_ejected_ratio` of a tier may be out; trips of most of its nodes within `shared_ms` are one shared cause.

    `may_lose_last`: the ladder has a next rung, so that a tier of one node may lose it.
    """

    max_ejected_ratio: float = 0.5
    shared_ms: int = 30_000
    may_lose_last: bool = True


@dataclass(slots=True)
class Member:
    """A node of the pool. `tiers` are those that it serves, as far as is known."""

    breaker: Breaker
    tiers: frozenset[int]
    tripped_ms: int | None = None


class Pool:
    """The nodes of a router, by address. Owned by the loop of its process."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._shared_until_ms: dict[int, int] = {}
        self.members: dict[str, Member] = {}

    def propose(self, address: str, trip: Trip, now_ms: int) -> Verdict:
        """A rule has spoken about a node. Ejects it, or lets it be and says why."""
        candidate = self.members[address]
        candidate.tripped_ms = now_ms
        verdicts = {self._judge(address, tier, trip, now_ms) for tier in candidate.tiers or _UNKNOWN}
        for verdict in (Verdict.SHARED, Verdict.LAST, Verdict.CAPPED):
            if verdict in verdicts:
                candidate.breaker.forgive()
                return verdict
        candidate.breaker.eject(trip, now_ms)
        return Verdict.EJECTED

    def _of(self, tier: int) -> Mapping[str, Member]:
        return {address: member for address, member in self.members.items() if tier in (member.tiers or _UNKNOWN)}

    def _judge(self, address: str, tier: int, trip: Trip, now_ms: int) -> Verdict:
        peers = self._of(tier)
        if trip in _BY_OUTCOMES and self._is_shared(peers, tier, now_ms):
            return Verdict.SHARED
        if len(peers) == 1:
            return Verdict.EJECTED if self._settings.may_lose_last else Verdict.LAST
        out = sum(member.breaker.phase is Phase.OUT for other, member in peers.items() if other != address)
        return Verdict.EJECTED if out + 1 <= self._settings.max_ejected_ratio * len(peers) else Verdict.CAPPED

    def _is_shared(self, peers: Mapping[str, Member], tier: int, now_ms: int) -> bool:
        if now_ms < self._shared_until_ms.get(tier, 0):
            return True
        recent_ms = now_ms - self._settings.shared_ms
        tripped = [m for m in peers.values() if m.tripped_ms is not None and m.tripped_ms > recent_ms]
        if len(peers) < 2 or len(tripped) <= len(peers) / 2:
            return False
        self._shared_until_ms[tier] = now_ms + self._settings.shared_ms
        for member in tripped:
            # Those that went first were only the first to be asked.
            if member.breaker.phase is Phase.OUT and member.breaker.trip in _BY_OUTCOMES:
                member.breaker.release()
        return True
