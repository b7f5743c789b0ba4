"""Which of the nodes that should go do go: caps, the last of a tier, and faults that all share. Pure.

Per tier at most half of the nodes are out, counted with the candidate (envoyproxy/envoy #27066 counts without it, and
loses small clusters). Rules that speak about most nodes of a tier at once speak about something that they share, and
eject none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop.v1.mesh_pb2 import Tier
from ssop_router.core.breaker import Breaker, Phase, Trip

# Faults that show in the outcomes of requests; a node that is gone or killed is so by itself.
_BY_OUTCOMES: Final = frozenset({Trip.SLOW, Trip.CONSECUTIVE, Trip.BURST, Trip.HINTED})
# The tiers by which a tier that lost its only node is served, degraded.
_NEXT_RUNGS: Final[Mapping[int, int]] = {Tier.TIER_FULL: Tier.TIER_LITE}
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

    `may_lose_last`: a tier of one node may lose it where the ladder has a next rung, on another node.
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
        verdicts = {self._judge(address, tier, trip, now_ms) for tier in _known(candidate)}
        for verdict in (Verdict.SHARED, Verdict.LAST, Verdict.CAPPED):
            if verdict in verdicts:
                candidate.breaker.forgive()
                if verdict is Verdict.CAPPED:
                    self._hasten(candidate, now_ms)
                return verdict
        candidate.breaker.eject(trip, now_ms)
        if any(len(self._of(tier)) == 1 and not self._has_next_rung(address, tier) for tier in _known(candidate)):
            # Nothing else serves meanwhile, so that a back-off would only prolong the outage.
            candidate.breaker.hasten(now_ms)
        return Verdict.EJECTED

    def _hasten(self, candidate: Member, now_ms: int) -> None:
        """A node had to stay since too many are out: these are tried without waiting for the end of their back-off."""
        for tier in _known(candidate):
            for member in self._of(tier).values():
                member.breaker.hasten(now_ms)

    def _has_next_rung(self, address: str, tier: int) -> bool:
        rung = _NEXT_RUNGS.get(tier)
        others = {other: member for other, member in self.members.items() if other != address}
        return rung is not None and any(
            rung in _known(member) and member.breaker.phase is not Phase.OUT for member in others.values()
        )

    def _of(self, tier: int) -> Mapping[str, Member]:
        return {address: member for address, member in self.members.items() if tier in _known(member)}

    def _judge(self, address: str, tier: int, trip: Trip, now_ms: int) -> Verdict:
        peers = self._of(tier)
        if trip in _BY_OUTCOMES and self._is_shared(peers, tier, now_ms):
            return Verdict.SHARED
        if len(peers) == 1:
            # One that is gone or hangs serves nobody by staying, and without it callers hear that at once.
            is_no_use = trip is Trip.LOST or peers[address].breaker.keeps_waiting
            may_go = is_no_use or self._has_next_rung(address, tier)
            return Verdict.EJECTED if self._settings.may_lose_last and may_go else Verdict.LAST
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


def _known(member: Member) -> frozenset[int]:
    return member.tiers or _UNKNOWN
