"""Nodes, breakers and requests on a virtual clock: minutes of traffic in a second, the same for the same seed."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ssop_router.core.breaker import Breaker, BreakerSettings, Phase, Probe
from ssop_router.core.pool import Member, Pool, PoolSettings, Verdict

TIER = 1
TIMEOUT_MS = 2_000
"""After which an attempt without a first field is given up."""


class Reply(NamedTuple):
    """What a node does with an attempt: None never answers."""

    latency_ms: float | None
    is_good: bool = True


Behaviour = Callable[[random.Random, int], Reply]


def healthy(rng: random.Random, _: int) -> Reply:
    return Reply(rng.lognormvariate(6.2, 0.4))


def fails_fast(_: random.Random, __: int) -> Reply:
    return Reply(5, is_good=False)


def hangs(_: random.Random, __: int) -> Reply:
    return Reply(None)


def slow(rng: random.Random, _: int) -> Reply:
    return Reply(rng.uniform(2_000, 2_400))


def errs_now_and_then(rng: random.Random, now_ms: int) -> Reply:
    return Reply(300, is_good=False) if rng.random() < 0.06 else healthy(rng, now_ms)


def dies_for_memory(rng: random.Random, now_ms: int) -> Reply:
    return Reply(50, is_good=False) if now_ms % 20_000 < 4_000 else healthy(rng, now_ms)


def flaps(rng: random.Random, now_ms: int) -> Reply:
    return Reply(5, is_good=False) if now_ms // 30_000 % 2 else healthy(rng, now_ms)


@dataclass
class Result:
    """What came of a simulation."""

    requests: int = 0
    failures: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    ejections: Counter[str] = field(default_factory=Counter)
    refused_ejections: Counter[Verdict] = field(default_factory=Counter)
    late_calls: Counter[str] = field(default_factory=Counter)
    """Calls after the first ten seconds."""
    out_ms: Counter[str] = field(default_factory=Counter)


class Simulation:
    """`behaviours` by node name. Requests come at random, `rps` of them a second; one tries five nodes at most."""

    def __init__(
        self,
        behaviours: Mapping[str, Behaviour],
        *,
        seed: int,
        rps: float = 40,
        settings: BreakerSettings | None = None,
        cancel_ratio: float = 0.0,
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.result = Result()
        self._behaviours = behaviours
        self._rps = rps
        self._cancel_ratio = cancel_ratio
        self._in_flight: Counter[str] = Counter()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self.pool = Pool(PoolSettings())
        for name in behaviours:
            breaker = Breaker(settings or BreakerSettings(), self.rng)
            self.pool.members[name] = Member(breaker, frozenset({TIER}))

    def run(self, duration_ms: int) -> Result:
        """Let it go on for a time."""
        end_ms = self.now_ms + duration_ms
        if not self._events:
            self._at(0, self._arrive)
            self._at(0, self._look)
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = end_ms
        return self.result

    def phase(self, name: str) -> Phase:
        return self.pool.members[name].breaker.phase

    def _at(self, delay_ms: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (self.now_ms + round(delay_ms), self._serial, event))

    def _arrive(self) -> None:
        self.result.requests += 1
        self._try(frozenset())
        self._at(self.rng.expovariate(self._rps) * 1_000, self._arrive)

    def _look(self) -> None:
        for name, member in self.pool.members.items():
            if (trip := member.breaker.check(self.now_ms)) is not None:
                self._propose(name, trip)
            if member.breaker.is_probe_due(self.now_ms):
                self._probe(name)
            if member.breaker.phase is Phase.OUT:
                self.result.out_ms[name] += 250
        self._at(250, self._look)

    def _propose(self, name: str, trip: object) -> None:
        verdict = self.pool.propose(name, trip, self.now_ms)  # type: ignore[arg-type]
        if verdict is Verdict.EJECTED:
            self.result.ejections[name] += 1
        else:
            self.result.refused_ejections[verdict] += 1

    def _probe(self, name: str) -> None:
        breaker = self.pool.members[name].breaker
        breaker.begin_probe(self.now_ms)
        reply = self._behaviours[name](self.rng, self.now_ms)
        is_late = reply.latency_ms is None or reply.latency_ms >= TIMEOUT_MS
        verdict = Probe.GOOD if reply.is_good and not is_late else Probe.BAD

        def end() -> None:
            breaker.end_probe(verdict, self.now_ms)

        self._at(TIMEOUT_MS if reply.latency_ms is None or is_late else reply.latency_ms, end)

    def _try(self, failed: frozenset[str]) -> None:
        weights = {
            name: member.breaker.weight(self.now_ms) for name, member in self.pool.members.items() if name not in failed
        }
        usable = {name: weight for name, weight in weights.items() if weight > 0}
        if not usable or len(failed) == 5:
            self.result.failures += 1
            return
        # As the score of a decision does: who has just failed comes after who has not.
        loads = {
            name: (self._in_flight[name] + 1) / weight * (1 + self.pool.members[name].breaker.failures_in_a_row)
            for name, weight in usable.items()
        }
        least = min(loads.values())
        name = self.rng.choice([name for name, load in loads.items() if load == least])
        self.result.calls[name] += 1
        if self.now_ms >= 10_000:
            self.result.late_calls[name] += 1
        self._in_flight[name] += 1
        reply = self._behaviours[name](self.rng, self.now_ms)
        latency_ms = TIMEOUT_MS if reply.latency_ms is None else min(reply.latency_ms, TIMEOUT_MS)
        is_good = reply.is_good and latency_ms < TIMEOUT_MS
        if self.rng.random() < self._cancel_ratio:
            self._at(self.rng.uniform(0, latency_ms), lambda: self._leave(name))
        else:
            self._at(latency_ms, lambda: self._end(name, latency_ms, is_good, failed))

    def _leave(self, name: str) -> None:
        """The caller went away: that says nothing about the node."""
        self._in_flight[name] -= 1

    def _end(self, name: str, latency_ms: float, is_good: bool, failed: frozenset[str]) -> None:
        self._in_flight[name] -= 1
        breaker = self.pool.members[name].breaker
        if is_good:
            breaker.succeed(latency_ms, self.now_ms)
            return
        trip = breaker.fail(latency_ms, self.now_ms)
        self._try(failed | {name})
        if trip is not None:
            self._propose(name, trip)
