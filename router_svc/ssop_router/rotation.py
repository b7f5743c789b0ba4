"""Takes nodes out of rotation and brings them back: the rules of `core/breaker.py` and `core/pool.py`, on a clock."""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.inference_pb2 import WarmUpRequest
from ssop.v1.mesh_pb2 import Tier
from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.logs import describe
from ssop_router.core.breaker import Breaker, BreakerSettings, Phase, Probe, Trip
from ssop_router.core.concurrency import ConcurrencySettings, Window
from ssop_router.core.pool import Member, Pool, PoolSettings, Verdict
from ssop_router.core.success import Outcome, judge
from ssop_router.metrics import RouterMetrics

PROBE_METHOD: Final = "/ssop.v1.InferenceService/WarmUp"
_TICK_S: Final = 0.1
# Looking a member up in its enum costs as much as a rule.
_SUCCESS: Final = Outcome.SUCCESS
_IN: Final = Phase.IN
_WARN_AGAIN_MS: Final = 10_000
_log = logging.getLogger(__name__)


class Standing(NamedTuple):
    """Where a node stands. `weight` is its share of a full load, 0 while it is out; `limit` bounds its requests."""

    weight: float = 1.0
    limit: int = 2**31
    reason: str = ""


class Hint(NamedTuple):
    """A router has a node out by this rule, and last saw it fail `age_ms` ago."""

    address: str
    rule: str
    age_ms: int


class Rotation:
    """The nodes of a router, by address. `clock_ms` is monotonic; `metadata` makes the router's own principal.

    `on_change` hears the address of a node whose standing is another now.
    """

    def __init__(
        self,
        peers: Mapping[str, Peer],
        *,
        breaker: BreakerSettings,
        pool: PoolSettings,
        concurrency: ConcurrencySettings,
        metrics: RouterMetrics,
        clock_ms: Callable[[], int],
        rng: random.Random,
        metadata: Callable[[], Mapping[str, str | bytes]],
        on_change: Callable[[str], None],
    ) -> None:
        self._peers: dict[str, Peer] = {}
        self._settings = breaker
        self._concurrency = concurrency
        self._steady = Standing(limit=math.floor(concurrency.largest))
        self._rng = rng
        self._pool = Pool(pool)
        self._windows: dict[str, Window] = {}
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._metadata = metadata
        self._on_change = on_change
        self._probes: set[asyncio.Task[None]] = set()
        self._warned_ms: dict[str, int] = {}
        self.changed = asyncio.Event()
        """Set when a node goes or comes back; who tells others of that clears it."""
        for address, peer in peers.items():
            self.add(address, peer)

    def add(self, address: str, peer: Peer) -> None:
        """A node is new, and in."""
        self._peers[address] = peer
        self._windows[address] = Window(self._concurrency)
        self._pool.members[address] = Member(Breaker(self._settings, self._rng), frozenset())

    def remove(self, address: str) -> None:
        """A node has left. A probe of it that still runs says nothing any more."""
        del self._peers[address], self._windows[address], self._pool.members[address]
        self._warned_ms.pop(address, None)
        with suppress(KeyError):
            self._metrics.ejected.remove(address)

    def standing(self, address: str) -> Standing:
        """Where a node stands now."""
        now_ms = self._clock_ms()
        breaker = self._pool.members[address].breaker
        limit = self._windows[address].limit(now_ms)
        return Standing(breaker.weight(now_ms), limit, breaker.trip.value if breaker.trip is not None else "")

    def serve_tiers(self, address: str, tiers: Sequence[Tier.ValueType]) -> None:
        """What a node says that it serves."""
        self._pool.members[address].tiers = frozenset(tiers)

    def record(self, address: str, outcome: Outcome, latency_ms: float, in_flight: int) -> Standing:
        """An attempt has ended, `latency_ms` after it began or with its first field; that one counts in `in_flight`.

        Returns where its node stands from now on.
        """
        now_ms = self._clock_ms()
        breaker, window = self._pool.members[address].breaker, self._windows[address]
        trip: Trip | None = None
        if outcome is _SUCCESS:
            breaker.succeed(latency_ms, now_ms)
            if window.is_open and breaker.phase is _IN:
                return self._steady
            window.serve(in_flight, now_ms)
        elif outcome is Outcome.FAILURE:
            trip = breaker.fail(latency_ms, now_ms)
        elif outcome is Outcome.BUSY:
            window.refuse(in_flight, now_ms)
            self._metrics.refused_by_nodes.inc()
        self._propose(address, trip)
        return self.standing(address)

    def lose(self, address: str) -> None:
        """A node's connection was lost and could not be made again at once."""
        self._propose(address, self._pool.members[address].breaker.lose())

    def take_ooms(self, address: str, kills: int) -> None:
        """A node was killed for memory so many times more."""
        for _ in range(min(kills, self._settings.oom_kills)):
            self._propose(address, self._pool.members[address].breaker.take_oom(self._clock_ms()))

    def hints(self) -> list[Hint]:
        """The nodes that are out here, for other routers."""
        now_ms = self._clock_ms()
        return [
            Hint(address, member.breaker.trip.value, age_ms)
            for address, member in self._pool.members.items()
            if member.breaker.trip is not None and (age_ms := member.breaker.hint_age_ms(now_ms)) is not None
        ]

    def take_hint(self, hint: Hint) -> bool:
        """What another router says; whether it counts here."""
        member = self._pool.members.get(hint.address)
        return member is not None and member.breaker.take_hint(hint.age_ms, self._clock_ms())

    async def watch(self) -> None:
        """Look at the slow rule, and try nodes that are out; runs until cancelled."""
        try:
            while True:
                try:
                    self.look()
                except Exception as error:  # noqa: BLE001 - whatever it is, nodes that are out must be tried again
                    self._metrics.watch_faults.inc()
                    _log.error("a look at the rotation failed", extra={"cause": describe(error)})
                await asyncio.sleep(_TICK_S)
        finally:
            for probe in self._probes:
                probe.cancel()
            await asyncio.gather(*self._probes, return_exceptions=True)

    def look(self) -> None:
        """Look once."""
        now_ms = self._clock_ms()
        for address, member in self._pool.members.items():
            self._propose(address, member.breaker.check(now_ms))
            if member.breaker.is_probe_due(now_ms):
                member.breaker.begin_probe(now_ms)
                probe = asyncio.ensure_future(self._probe(address))
                self._probes.add(probe)
                probe.add_done_callback(self._probes.discard)
            if member.breaker.phase is Phase.RETURNING or not self._windows[address].is_open:
                # Share and window grow with time alone.
                self._on_change(address)

    async def _probe(self, address: str) -> None:
        """One real generation. Whatever it ends with, its place is given up."""
        member = self._pool.members[address]
        breaker = member.breaker
        verdict = Probe.BAD
        try:
            await self._peers[address].unary(
                PROBE_METHOD,
                WarmUpRequest().SerializeToString(),
                timeout_s=self._settings.probe_lease_ms / 1000,
                metadata=self._metadata(),
            )
            verdict = Probe.GOOD
        except MeshError as error:
            verdict = _judge_probe(error)
            _log.debug("a probe failed", extra={"address": address, "cause": describe(error)})
        except Exception as error:  # noqa: BLE001 - a probe that fails in whatever way is a bad one
            _log.error("a probe broke", extra={"address": address, "cause": describe(error)})
        finally:
            was_out = breaker.phase is Phase.OUT
            trip = breaker.end_probe(verdict, self._clock_ms())
            self._metrics.probes.labels(verdict.value).inc()
        if self._pool.members.get(address) is not member:
            return
        self._propose(address, trip)
        if was_out and breaker.phase is not Phase.OUT:
            _log.info("a node is in rotation again", extra={"address": address})
            self.changed.set()
            self._metrics.ejected.labels(address).set(0)
            self._on_change(address)

    def _propose(self, address: str, trip: Trip | None) -> None:
        if trip is None:
            return
        now_ms = self._clock_ms()
        verdict = self._pool.propose(address, trip, now_ms)
        self._metrics.ejections.labels(trip.value, verdict.value).inc()
        if verdict is Verdict.EJECTED:
            _log.info("a node is out of rotation", extra={"address": address, "rule": trip.value})
            self.changed.set()
        elif now_ms - self._warned_ms.get(address, -_WARN_AGAIN_MS) >= _WARN_AGAIN_MS:
            # While everything fails a rule speaks many times a second; the metric counts them all.
            self._warned_ms[address] = now_ms
            _log.warning(
                "a node stays in rotation although a rule spoke",
                extra={"address": address, "rule": trip.value, "verdict": verdict.value},
            )
        if verdict in {Verdict.CAPPED, Verdict.LAST}:
            return
        for other, member in self._pool.members.items():
            self._metrics.ejected.labels(other).set(member.breaker.phase is Phase.OUT)
            self._on_change(other)


def _judge_probe(error: MeshError) -> Probe:
    """What a failed probe says: nothing where the node is full.

    A node without the method answers, at least: its share begins small, and a relapse waits.
    """
    if error.reason == ErrorReason.ERROR_REASON_UNSUPPORTED:
        return Probe.GOOD
    return Probe.BUSY if judge(error.reason) is Outcome.BUSY else Probe.BAD
