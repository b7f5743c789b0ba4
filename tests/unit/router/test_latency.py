"""The window of outcomes, beside a slow twin that keeps every one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from ssop_router.core.latency import LatencyWindow

way = run_both_ways("ssop_router.core.latency", "LatencyWindow")

SLOT_MS, SLOTS = 1_000, 10
LATENCIES = st.floats(0.01, 1e6) | st.sampled_from((0.0, 1.0, 1500.0, math.inf, math.nan))
STEPS = st.lists(st.tuples(st.integers(0, 3 * SLOT_MS), LATENCIES, st.booleans()), max_size=60)


@given(STEPS, st.integers(0, 20 * SLOT_MS))
def test_window_agrees_with_one_that_keeps_everything(steps: list[tuple[int, float, bool]], wait_ms: int) -> None:
    window, kept, now_ms = LatencyWindow(slots=SLOTS, slot_ms=SLOT_MS), [], 0
    for step_ms, latency_ms, is_failure in steps:
        now_ms += step_ms
        window.record(latency_ms, is_failure=is_failure, now_ms=now_ms)
        kept.append((now_ms, latency_ms, is_failure))
    now_ms += wait_ms
    alive = [entry for entry in kept if entry[0] // SLOT_MS > now_ms // SLOT_MS - SLOTS]
    stats = window.stats(now_ms)
    assert stats.outcomes == len(alive)
    assert stats.failures == sum(is_failure for _, _, is_failure in alive)
    if alive:
        day_ms = 86_400_000.0
        ordered = sorted(max(0.001, ms) if ms <= day_ms else day_ms for _, ms, _ in alive)
        exact = ordered[math.ceil(0.95 * len(ordered)) - 1]
        assert stats.p95_ms == pytest.approx(exact, rel=0.021)


def test_nothing_has_no_percentile() -> None:
    stats = LatencyWindow().stats(5)
    assert (stats.outcomes, stats.failure_ratio, stats.p95_ms) == (0, 0.0, 0.0)


def test_outcome_leaves_with_its_slot() -> None:
    window = LatencyWindow(slots=SLOTS, slot_ms=SLOT_MS)
    window.record(1, is_failure=True, now_ms=500)
    assert window.stats(9_999).outcomes == 1
    assert window.stats(10_000).outcomes == 0


def test_clock_that_goes_back_neither_loses_nor_keeps_outcomes() -> None:
    window = LatencyWindow(slots=SLOTS, slot_ms=SLOT_MS)
    window.record(1, is_failure=True, now_ms=5_000)
    window.record(1, is_failure=False, now_ms=1_000)
    assert window.stats(2_000).outcomes == 2
    assert window.stats(15_000) == (0, 0, 0.0)
