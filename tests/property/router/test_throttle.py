"""The dynamic rate in a closed loop: a simulated mesh on a virtual clock; load that steps, noise, lost nodes."""

import heapq
import random
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssop_router.core.throttle import Throttle, ThrottleSettings

STEP_MS = 10
TARGET_MS = ThrottleSettings().target_ms
BURST = 10


@dataclass
class Run:
    """What a simulation saw, each second: the rate, and the longest wait of the first fields of that second."""

    rates: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)

    def spread(self, first_s: int, last_s: int) -> float:
        """Standard deviation of the rate by its mean."""
        part = self.rates[first_s:last_s]
        return statistics.pstdev(part) / statistics.mean(part)

    def mean(self, first_s: int, last_s: int) -> float:
        return statistics.mean(self.rates[first_s:last_s])


def simulate(
    *,
    slots: Callable[[float], int],
    service_ms: float,
    demand_rps: Callable[[float], float],
    full_rps: float,
    seconds: int,
    seed: int,
) -> Run:
    """Poisson arrivals, admitted at the rate that the controller gives, queue for slots of noisy length."""
    rng = random.Random(seed)
    throttle = Throttle(ThrottleSettings(), 0)
    queue: deque[tuple[int, int]] = deque()
    busy: list[float] = []
    fields: list[tuple[float, int, int]] = []
    run = Run()
    next_ms, due_ms, longest_ms = 0.0, 0.0, 0.0
    for now_ms in range(0, seconds * 1000, STEP_MS):
        while fields and fields[0][0] <= now_ms:
            at_ms, number, began_ms = heapq.heappop(fields)
            throttle.end(number, int(at_ms))
            longest_ms = max(longest_ms, at_ms - began_ms)
        while busy and busy[0] <= now_ms:
            heapq.heappop(busy)
        while next_ms <= now_ms:
            next_ms += rng.expovariate(demand_rps(now_ms / 1000)) * 1000
            interval_ms = 1000 / (full_rps * throttle.share(now_ms))
            new_due_ms = max(due_ms, now_ms) + interval_ms
            if now_ms >= new_due_ms - max(interval_ms, BURST * 1000 / full_rps):
                due_ms = new_due_ms
                queue.append((throttle.begin(now_ms), now_ms))
        while queue and len(busy) < slots(now_ms / 1000):
            number, began_ms = queue.popleft()
            heapq.heappush(busy, now_ms + service_ms * rng.lognormvariate(0, 0.3))
            heapq.heappush(fields, (now_ms + 0.3 * service_ms * rng.lognormvariate(0, 0.3), number, began_ms))
        if now_ms % 1000 == 0:
            run.rates.append(full_rps * throttle.share(now_ms))
            run.waits_ms.append(longest_ms)
            longest_ms = 0.0
    return run


PLANTS = pytest.mark.parametrize(("slots", "service_ms"), [(8, 200.0), (8, 2_000.0), (2, 500.0)])


@PLANTS
@pytest.mark.parametrize("seed", [1, 2])
def test_overload_settles_at_what_the_mesh_serves_without_oscillation(slots: int, service_ms: float, seed: int) -> None:
    served_rps = slots / service_ms * 1000
    run = simulate(
        slots=lambda _: slots,
        service_ms=service_ms,
        demand_rps=lambda s: 3 * served_rps if s >= 20 else 0.4 * served_rps,
        full_rps=5 * served_rps,
        seconds=160,
        seed=seed,
    )
    assert run.rates[19] == 5 * served_rps
    assert 0.8 < run.mean(80, 160) / served_rps < 1.15
    assert run.spread(80, 160) < 0.2
    assert statistics.median(run.waits_ms[80:]) < 2 * TARGET_MS
    assert max(run.waits_ms) < 6 * TARGET_MS


@PLANTS
def test_lost_nodes_lower_the_rate_and_it_heals_when_they_are_back(slots: int, service_ms: float) -> None:
    served_rps = slots / service_ms * 1000
    run = simulate(
        slots=lambda s: max(1, slots // 4) if 30 <= s < 90 else slots,
        service_ms=service_ms,
        demand_rps=lambda _: 0.7 * served_rps,
        full_rps=2 * served_rps,
        seconds=240,
        seed=3,
    )
    assert run.mean(60, 90) < 0.8 * served_rps
    assert min(run.rates[200:]) > 0.9 * 2 * served_rps


@PLANTS
def test_noise_below_the_target_moves_nothing(slots: int, service_ms: float) -> None:
    served_rps = slots / service_ms * 1000
    run = simulate(
        slots=lambda _: slots,
        service_ms=service_ms,
        demand_rps=lambda _: 0.5 * served_rps,
        full_rps=2 * served_rps,
        seconds=120,
        seed=4,
    )
    assert min(run.rates) > 0.9 * 2 * served_rps


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "end", "refuse", "drop", "share"]), st.integers(0, 5_000))),
    st.floats(0.001, 1),
)
@settings(max_examples=200)
def test_the_share_stays_in_its_bounds(steps: list[tuple[str, int]], smallest: float) -> None:
    throttle, now_ms, began = Throttle(ThrottleSettings(), 0), 0, 0
    throttle.set_smallest(smallest)
    for what, wait_ms in steps:
        now_ms += wait_ms
        if what == "begin":
            began = throttle.begin(now_ms)
        elif what == "drop":
            throttle.drop(began)
        elif what in {"end", "refuse"}:
            throttle.end(began, now_ms, is_refused=what == "refuse")
        assert min(1.0, max(0.01, smallest)) - 1e-9 <= throttle.share(now_ms) <= 1.0
