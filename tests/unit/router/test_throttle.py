"""How much of the full rate nodes can bear: the controller alone."""

import math

import pytest

from helpers.as_written import run_both_ways
from ssop_router.core.throttle import Throttle, ThrottleSettings

way = run_both_ways("ssop_router.core.throttle", "Throttle")

SETTINGS = ThrottleSettings()


def serve(throttle: Throttle, wait_ms: int, *, first_ms: int, last_ms: int, rps: int = 20) -> None:
    """Requests at an even rate, each of which waits so long; those of the end still wait."""
    ends: list[tuple[int, int]] = []
    for now_ms in range(first_ms, last_ms, 1000 // rps):
        while ends and ends[0][0] <= now_ms:
            end_ms, number = ends.pop(0)
            throttle.end(number, end_ms)
        ends.append((now_ms + wait_ms, throttle.begin(now_ms)))


def test_it_begins_with_the_full_rate() -> None:
    assert Throttle(SETTINGS, 0).share(0) == 1.0


@pytest.mark.parametrize(("wait_ms", "is_lowered"), [(200, False), (1_200, False), (2_500, True), (9_000, True)])
def test_waits_above_the_target_lower_it(wait_ms: int, is_lowered: bool) -> None:
    throttle = Throttle(SETTINGS, 0)
    serve(throttle, wait_ms, first_ms=0, last_ms=30_000)
    assert (throttle.share(30_000) < 0.8) == is_lowered


def test_load_is_the_wait_in_targets() -> None:
    throttle = Throttle(SETTINGS, 0)
    serve(throttle, 3_000, first_ms=0, last_ms=30_000)
    assert throttle.load == pytest.approx(2.0, rel=0.05)


def test_it_never_falls_below_the_least_share() -> None:
    throttle = Throttle(SETTINGS, 0)
    throttle.set_smallest(0.25)
    serve(throttle, 20_000, first_ms=0, last_ms=300_000)
    assert throttle.share(300_000) == pytest.approx(0.25)


def test_one_that_hangs_among_many_says_little() -> None:
    throttle = Throttle(SETTINGS, 0)
    throttle.begin(0)
    serve(throttle, 200, first_ms=0, last_ms=30_000)
    assert throttle.share(30_000) == 1.0


def test_all_hang_and_it_falls_although_nothing_ends() -> None:
    throttle = Throttle(SETTINGS, 0)
    for now_ms in range(0, 10_000, 100):
        throttle.begin(now_ms)
    assert throttle.share(10_000) < 0.5


def test_full_nodes_that_refuse_most_lower_it() -> None:
    throttle = Throttle(SETTINGS, 0)
    for now_ms in range(0, 20_000, 50):
        throttle.end(throttle.begin(now_ms), now_ms + 1, is_refused=now_ms % 200 != 0)
    assert throttle.share(20_000) < 0.9


def test_one_full_node_of_many_lowers_nothing() -> None:
    throttle = Throttle(SETTINGS, 0)
    for now_ms in range(0, 20_000, 50):
        throttle.end(throttle.begin(now_ms), now_ms + 1, is_refused=now_ms % 500 == 0)
    assert throttle.share(20_000) == 1.0


def test_failures_say_nothing() -> None:
    throttle = Throttle(SETTINGS, 0)
    for now_ms in range(0, 20_000, 50):
        throttle.drop(throttle.begin(now_ms))
    assert throttle.share(20_000) == 1.0


def test_a_second_end_says_nothing() -> None:
    throttle = Throttle(SETTINGS, 0)
    number = throttle.begin(0)
    throttle.end(number, 10)
    throttle.end(number, 90_000)
    throttle.drop(number)
    assert throttle.load == 0.0


def test_a_quiet_time_heals_it_without_a_request() -> None:
    throttle = Throttle(SETTINGS, 0)
    serve(throttle, 9_000, first_ms=0, last_ms=60_000)
    for number in range(10_000):
        throttle.drop(number)
    assert throttle.share(60_300) < 0.3
    assert throttle.share(600_000) == 1.0


@pytest.mark.parametrize("now_ms", [0, -5_000, 10**15])
def test_any_time_gives_a_share(now_ms: int) -> None:
    throttle = Throttle(SETTINGS, 0)
    throttle.begin(0)
    assert 0 < throttle.share(now_ms) <= 1
    assert math.isfinite(throttle.load)
