# cython: annotation_typing=False
"""When a node is taken out of rotation, how it is tried, and how it comes back. Pure: time and chance are passed in.

A breaker judges one node by its own outcomes and only proposes to eject it; whether that is done is the pool's business
(`core/pool.py`), which sees the others. Outcomes that say nothing about the node never reach a breaker.

`breaker.pxd` gives the types with which this very file is compiled.
"""

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ssop_router.core.latency import LatencyWindow

_BURST_KEPT: Final = 1_000
_JITTER: Final = 0.2


class Trip(StrEnum):
    """The rule by which a node is to go."""

    SLOW = "slow"
    CONSECUTIVE = "consecutive_failures"
    BURST = "failure_burst"
    LOST = "connection_lost"
    MEMORY = "repeated_oom"
    HINTED = "hinted"
    """Another router took it out, and it failed a try here."""


class Phase(StrEnum):
    """Where a node is."""

    IN = "in"
    OUT = "out"
    RETURNING = "returning"
    """In rotation again, with a share of the load that grows."""


class Probe(StrEnum):
    """How a probe ended."""

    GOOD = "good"
    BUSY = "busy"
    """The node is full: that speaks neither for it nor against it."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The rules. Slow: P95 and failures above their bounds with enough outcomes, for `slow_hold_ms` without a break.

    While another router's hint is younger than `hint_max_age_ms`, `hinted_failures` in a row are enough.
    """

    slow_min_outcomes: int = 100
    slow_p95_ms: float = 1_500.0
    slow_failure_ratio: float = 0.05
    slow_hold_ms: int = 120_000
    check_ms: int = 1_000
    consecutive_failures: int = 5
    burst_window_ms: int = 10_000
    burst_min_outcomes: int = 20
    burst_failure_ratio: float = 0.5
    hinted_failures: int = 2
    hint_max_age_ms: int = 10_000
    oom_kills: int = 2
    oom_window_ms: int = 600_000
    probe_ms: int = 1_000
    probe_again_ms: int = 250
    probe_lease_ms: int = 10_000
    good_probes: int = 3
    relapse_ms: int = 120_000
    backoff_min_ms: int = 30_000
    backoff_max_ms: int = 300_000
    slow_start_ms: int = 60_000
    slow_start_floor: float = 0.1


class Breaker:
    """One node. Owned by the loop of its process."""

    def __init__(self, settings: BreakerSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._window = LatencyWindow()
        self._recent: deque[tuple[int, bool]] = deque(maxlen=_BURST_KEPT)
        self.failures_in_a_row = 0
        self._failed_after_ms = 0.0
        self._slow_since_ms: int | None = None
        self._checked_ms = 0
        self._ooms: deque[int] = deque(maxlen=settings.oom_kills)
        self._good_probes = 0
        self._probe_due_ms = 0
        self._probe_ends_ms: int | None = None
        self._returned_ms: int | None = None
        self._backoff_ms = 0
        self._failed_ms = 0
        self._hinted_until_ms = 0
        self._is_hint_untried = False
        self._hint_tried_ms: int | None = None
        self.phase = Phase.IN
        self.trip: Trip | None = None

    @property
    def keeps_waiting(self) -> bool:
        """It last failed only after a time that counts as slow: callers are better off without it."""
        return self._failed_after_ms > self._settings.slow_p95_ms

    # --- what happens to the node

    def succeed(self, latency_ms: float, now_ms: int) -> None:
        """An attempt gave its first field after `latency_ms`, and went well."""
        self.failures_in_a_row = 0
        self._window.record(latency_ms, is_failure=False, now_ms=now_ms)
        self._recent.append((now_ms, False))

    def fail(self, latency_ms: float, now_ms: int) -> Trip | None:
        """An attempt failed hard, `latency_ms` after it began."""
        self.failures_in_a_row += 1
        self._failed_after_ms = latency_ms
        self._window.record(latency_ms, is_failure=True, now_ms=now_ms)
        self._recent.append((now_ms, True))
        settings = self._settings
        is_hinted = now_ms < self._hinted_until_ms
        enough = min(settings.hinted_failures if is_hinted else 2**31, settings.consecutive_failures)
        if self.failures_in_a_row >= enough:
            return self._propose(Trip.CONSECUTIVE)
        return self._propose(Trip.BURST) if self._is_burst(now_ms) else None

    def lose(self) -> Trip | None:
        """Its connection is lost and was not to be had again, or it says that it does not serve."""
        return self._propose(Trip.LOST)

    def take_oom(self, now_ms: int) -> Trip | None:
        """It was killed for memory."""
        self._ooms.append(now_ms)
        is_repeated = len(self._ooms) == self._settings.oom_kills
        if is_repeated and now_ms - self._ooms[0] <= self._settings.oom_window_ms:
            return self._propose(Trip.MEMORY)
        return None

    def check(self, now_ms: int) -> Trip | None:
        """Look at the slow rule; to be called at least every `check_ms`, whether or not there are outcomes."""
        self._settle(now_ms)
        if self.phase is Phase.OUT or now_ms - self._checked_ms < self._settings.check_ms:
            return None
        self._checked_ms = now_ms
        settings = self._settings
        stats = self._window.stats(now_ms)
        is_bad = (
            stats.outcomes >= settings.slow_min_outcomes
            and stats.p95_ms > settings.slow_p95_ms
            and stats.failure_ratio > settings.slow_failure_ratio
        )
        if not is_bad:
            self._slow_since_ms = None
        elif self._slow_since_ms is None:
            self._slow_since_ms = now_ms
        elif now_ms - self._slow_since_ms >= settings.slow_hold_ms:
            return Trip.SLOW
        return None

    # --- what other routers say

    def take_hint(self, age_ms: int, now_ms: int) -> bool:
        """Another router has it out, and saw it fail `age_ms` ago; whether that counts.

        It is tried once, soon, and judged by fewer failures. A hint alone never takes it out.
        """
        until_ms = now_ms - age_ms + self._settings.hint_max_age_ms
        if self.phase is Phase.OUT or until_ms <= now_ms:
            return False
        rests_until_ms = 0 if self._hint_tried_ms is None else self._hint_tried_ms + self._settings.hint_max_age_ms
        self._is_hint_untried = self._is_hint_untried or now_ms >= rests_until_ms
        self._hinted_until_ms = until_ms
        return True

    def hint_age_ms(self, now_ms: int) -> int | None:
        """Since when, in milliseconds, others should know that it is out; None while it is not."""
        return max(0, now_ms - self._failed_ms) if self.phase is Phase.OUT else None

    # --- what the pool decides

    def eject(self, trip: Trip, now_ms: int) -> None:
        """Take it out. A relapse waits before it is tried at all, each time twice as long."""
        settings = self._settings
        is_relapse = self._returned_ms is not None and now_ms - self._returned_ms < settings.relapse_ms
        if is_relapse:
            doubled = max(settings.backoff_min_ms, 2 * self._backoff_ms)
            self._backoff_ms = min(settings.backoff_max_ms, doubled)
            wait_ms = round(self._backoff_ms * self._rng.uniform(1 - _JITTER, 1 + _JITTER))
        else:
            self._backoff_ms = 0
            wait_ms = settings.probe_ms
        self.phase, self.trip = Phase.OUT, trip
        self._failed_ms = now_ms
        self._is_hint_untried, self._hint_tried_ms = False, None
        self._good_probes = 0
        self._probe_due_ms, self._probe_ends_ms = now_ms + wait_ms, None

    def hasten(self, now_ms: int) -> None:
        """Try it soon, whatever is left of its back-off: nothing better is there."""
        self._probe_due_ms = min(self._probe_due_ms, now_ms + self._settings.probe_ms)

    def release(self) -> None:
        """Put it back as if it had not been taken out: the fault was not its own."""
        self.phase, self.trip = Phase.IN, None
        self._forget()

    def forgive(self) -> None:
        """It is to stay although a rule spoke; the rules begin anew."""
        self._forget()

    # --- probes

    def is_probe_due(self, now_ms: int) -> bool:
        """Whether to try it now. A probe that was lost gives its place up when its lease is over."""
        if self.phase is Phase.OUT:
            is_wanted = now_ms >= self._probe_due_ms
        else:
            is_wanted = self._is_hint_untried and now_ms < self._hinted_until_ms
        return is_wanted and (self._probe_ends_ms is None or now_ms >= self._probe_ends_ms)

    def begin_probe(self, now_ms: int) -> None:
        """A probe starts; there is one at a time."""
        self._probe_ends_ms = now_ms + self._settings.probe_lease_ms
        if self.phase is not Phase.OUT:
            # A hint that turned out wrong is not followed again at once, whoever repeats it.
            self._is_hint_untried, self._hint_tried_ms = False, now_ms

    def end_probe(self, probe: Probe, now_ms: int) -> Trip | None:
        """A probe has ended; enough good ones without a bad one bring the node back.

        A bad one of a node that is in, tried since another router gave a hint, proposes to eject it.
        """
        self._probe_ends_ms = None
        if self.phase is not Phase.OUT:
            is_hinted = self._hint_tried_ms is not None and now_ms < self._hinted_until_ms
            return Trip.HINTED if probe is Probe.BAD and is_hinted else None
        if probe is not Probe.GOOD:
            if probe is Probe.BAD:
                self._good_probes = 0
                self._failed_ms = now_ms
            self._probe_due_ms = now_ms + self._settings.probe_ms
            return None
        self._good_probes += 1
        self._probe_due_ms = now_ms + self._settings.probe_again_ms
        if self._good_probes >= self._settings.good_probes:
            self.phase, self.trip = Phase.RETURNING, None
            self._returned_ms = now_ms
            self._forget()
        return None

    def weight(self, now_ms: int) -> float:
        """Share of a full load that it should get: 0 when it is out, growing from the floor when it returns."""
        self._settle(now_ms)
        if self.phase is Phase.OUT:
            return 0.0
        if self.phase is Phase.IN or self._returned_ms is None:
            return 1.0
        settings = self._settings
        grown = (now_ms - self._returned_ms) / settings.slow_start_ms
        return min(1.0, settings.slow_start_floor + (1 - settings.slow_start_floor) * max(0.0, grown))

    def _settle(self, now_ms: int) -> None:
        """The end of the slow start, and of the memory of an ejection."""
        if self._returned_ms is None or self.phase is Phase.OUT:
            return
        since_ms = now_ms - self._returned_ms
        if self.phase is Phase.RETURNING and since_ms >= self._settings.slow_start_ms:
            self.phase = Phase.IN
        if self.phase is Phase.IN and since_ms >= self._settings.relapse_ms:
            self._returned_ms = None
            self._backoff_ms = 0

    def _is_burst(self, now_ms: int) -> bool:
        recent = self._recent
        while recent and recent[0][0] <= now_ms - self._settings.burst_window_ms:
            recent.popleft()
        failures = sum(is_failure for _, is_failure in recent)
        return len(recent) >= self._settings.burst_min_outcomes and failures > self._settings.burst_failure_ratio * len(
            recent
        )

    def _propose(self, trip: Trip) -> Trip | None:
        return None if self.phase is Phase.OUT else trip

    def _forget(self) -> None:
        self._window.clear()
        self._recent.clear()
        self.failures_in_a_row = 0
        self._slow_since_ms = None
