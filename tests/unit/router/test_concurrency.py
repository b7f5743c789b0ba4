"""The window of a node that turns requests away."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from ssop_router.core.concurrency import ConcurrencySettings, Window

way = run_both_ways("ssop_router.core.concurrency", "Window")
SETTINGS = ConcurrencySettings(largest=64)


def test_refusal_halves_what_runs() -> None:
    window = Window(SETTINGS)
    window.refuse(20, 0)
    assert window.limit(0) == 10


def test_crowd_that_is_refused_at_once_counts_once() -> None:
    window = Window(SETTINGS)
    for now_ms in range(50):
        window.refuse(20, now_ms)
    assert window.limit(50) == 10


def test_full_window_that_serves_grows_by_one() -> None:
    window = Window(SETTINGS)
    window.refuse(20, 0)
    for _ in range(3):
        window.serve(10, 0)
    assert window.limit(0) == 13


def test_window_that_is_not_used_does_not_grow_by_serving() -> None:
    window = Window(SETTINGS)
    window.refuse(20, 0)
    window.serve(2, 0)
    assert window.limit(0) == 10


def test_node_that_refused_everything_is_wide_open_again_in_seconds() -> None:
    window = Window(SETTINGS)
    for now_ms in range(0, 10_000, 200):
        window.refuse(window.limit(now_ms), now_ms)
    assert window.limit(10_000) == 1
    assert window.limit(12_000) >= 8


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers(0, 5_000)), max_size=200))
def test_window_stays_within_its_bounds(events: list[tuple[bool, int, int]]) -> None:
    window, now_ms = Window(SETTINGS), 0
    for is_refusal, in_flight, step_ms in events:
        now_ms += step_ms
        window.refuse(in_flight, now_ms) if is_refusal else window.serve(in_flight, now_ms)
        assert 1 <= window.limit(now_ms) <= SETTINGS.largest
