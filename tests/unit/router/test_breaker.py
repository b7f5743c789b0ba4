"""One node's breaker on a virtual clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.as_written import run_both_ways
from ssop_router.core.breaker import Breaker, BreakerSettings, Phase, Probe, Trip

way = run_both_ways("ssop_router.core.breaker", "Breaker", "BreakerSettings", "Phase", "Probe", "Trip")
SETTINGS = BreakerSettings()


def make() -> Breaker:
    return Breaker(SETTINGS, random.Random(1))


def out(breaker: Breaker, now_ms: int = 0) -> Breaker:
    breaker.eject(Trip.CONSECUTIVE, now_ms)
    return breaker


def heal(breaker: Breaker, now_ms: int) -> int:
    """Probe well until the node is back; the time then."""
    while breaker.phase is Phase.OUT:
        if breaker.is_probe_due(now_ms):
            breaker.begin_probe(now_ms)
            breaker.end_probe(Probe.GOOD, now_ms)
        else:
            now_ms += 1
    return now_ms


def slow_traffic(breaker: Breaker, until_ms: int, *, failure_every: int = 10, latency_ms: float = 1_600) -> int | None:
    """Two outcomes a second; when the slow rule speaks, or None."""
    for now_ms in range(0, until_ms, 500):
        number = now_ms // 500
        if failure_every and number % failure_every == 0:
            breaker.fail(latency_ms, now_ms)
        else:
            breaker.succeed(latency_ms, now_ms)
        if now_ms % 1_000 == 0 and breaker.check(now_ms) is Trip.SLOW:
            return now_ms
    return None


def test_slow_rule_speaks_two_minutes_after_its_window_turned_bad_to_the_second() -> None:
    turned_bad_ms = 50_000  # the hundredth outcome comes at 49.5 s
    assert slow_traffic(make(), 600_000) == turned_bad_ms + SETTINGS.slow_hold_ms


@pytest.mark.parametrize(
    ("failure_every", "latency_ms"),
    [(0, 1_600), (21, 1_600), (10, 1_450)],
    ids=["no failures", "too few failures", "fast enough"],
)
def test_slow_rule_needs_both_of_its_conditions(failure_every: int, latency_ms: float) -> None:
    assert slow_traffic(make(), 600_000, failure_every=failure_every, latency_ms=latency_ms) is None


def test_slow_rule_needs_a_hundred_outcomes() -> None:
    breaker = make()
    for now_ms in range(0, 600_000, 1_500):  # 80 in two minutes
        breaker.succeed(5_000, now_ms) if now_ms % 15_000 else breaker.fail(5_000, now_ms)
        assert breaker.check(now_ms) is None


def test_slow_rule_begins_anew_after_one_good_look() -> None:
    breaker = make()
    assert slow_traffic(breaker, 160_000) is None
    for _ in range(2_000):
        breaker.succeed(100, 160_000)
    assert breaker.check(161_000) is None
    assert all(breaker.check(now_ms) is None for now_ms in range(162_000, 280_000, 1_000))


def test_five_failures_in_a_row_trip_and_a_success_between_does_not() -> None:
    breaker = make()
    outcomes = [breaker.fail(5, now_ms) for now_ms in range(4)]
    breaker.succeed(5, 4)
    outcomes += [breaker.fail(5, now_ms) for now_ms in range(5, 9)]
    assert outcomes == [None] * 8
    assert breaker.fail(5, 9) is Trip.CONSECUTIVE


def pattern_of(failures: str, step_ms: int, outcomes: int) -> list[Trip | None]:
    """What a breaker says to outcomes that repeat a pattern of `f` and `s`."""
    breaker = make()
    said: list[Trip | None] = []
    for index in range(outcomes):
        if failures[index % len(failures)] == "f":
            said.append(breaker.fail(5, index * step_ms))
        else:
            breaker.succeed(5, index * step_ms)
            said.append(None)
    return said


def test_more_than_half_of_twenty_in_ten_seconds_trip() -> None:
    assert pattern_of("ffs", 10, 30).index(Trip.BURST) == 19


def test_half_of_twenty_does_not() -> None:
    assert pattern_of("sf", 10, 100) == [None] * 100


def test_failures_of_long_ago_make_no_burst() -> None:
    assert pattern_of("ffs", 600, 60) == [None] * 60


def test_second_kill_for_memory_within_ten_minutes_trips() -> None:
    breaker = make()
    assert breaker.take_oom(0) is None
    assert breaker.take_oom(600_001) is None
    assert breaker.take_oom(700_000) is Trip.MEMORY


def test_node_that_is_well_again_is_back_within_two_seconds() -> None:
    assert heal(out(make()), 0) <= 2_000


def test_one_bad_probe_starts_the_count_anew() -> None:
    breaker = out(make())
    for probe in (Probe.GOOD, Probe.GOOD, Probe.BAD, Probe.GOOD, Probe.GOOD):
        now_ms = next(t for t in range(0, 60_000, 50) if breaker.is_probe_due(t))
        breaker.begin_probe(now_ms)
        breaker.end_probe(probe, now_ms)
    assert breaker.phase is Phase.OUT


def test_probe_that_a_full_node_turned_away_leaves_the_count_as_it_is() -> None:
    breaker = out(make())
    for probe in (Probe.GOOD, Probe.GOOD, Probe.BUSY, Probe.GOOD):
        assert breaker.phase is Phase.OUT
        now_ms = next(t for t in range(0, 60_000, 50) if breaker.is_probe_due(t))
        breaker.begin_probe(now_ms)
        breaker.end_probe(probe, now_ms)
    assert breaker.phase is Phase.RETURNING


def test_slow_start_may_last_longer_than_the_memory_of_an_ejection() -> None:
    breaker = Breaker(BreakerSettings(slow_start_ms=300_000), random.Random(1))
    back_ms = heal(out(breaker), 0)
    assert breaker.weight(back_ms + 150_000) == pytest.approx(0.55)
    assert breaker.weight(back_ms + 300_000) == 1.0
    assert breaker.phase is Phase.IN


def test_lost_probe_gives_its_place_up_when_its_lease_is_over() -> None:
    breaker = out(make())
    breaker.begin_probe(1_000)
    assert not breaker.is_probe_due(1_000 + SETTINGS.probe_lease_ms - 1)
    assert breaker.is_probe_due(1_000 + SETTINGS.probe_lease_ms)


def test_returning_node_gets_a_share_that_grows() -> None:
    breaker = out(make())
    back_ms = heal(breaker, 0)
    weights = [breaker.weight(back_ms + ms) for ms in (0, 30_000, 60_000)]
    assert weights == pytest.approx([0.1, 0.55, 1.0])
    assert breaker.phase is Phase.IN


def test_relapses_wait_30_s_and_twice_as_long_each_time_up_to_300_s() -> None:
    breaker, now_ms, waits = out(make()), 0, []
    for _ in range(6):
        now_ms = heal(breaker, now_ms) + 1_000
        breaker.eject(Trip.CONSECUTIVE, now_ms)
        waits.append(next(t for t in range(0, 400_000, 100) if breaker.is_probe_due(now_ms + t)))
    for wait_ms, expected_ms in zip(waits, (30_000, 60_000, 120_000, 240_000, 300_000, 300_000), strict=True):
        assert 0.79 * expected_ms <= wait_ms <= 1.21 * expected_ms


def test_two_clean_minutes_end_the_memory_of_an_ejection() -> None:
    breaker = out(make())
    now_ms = heal(breaker, 0) + SETTINGS.relapse_ms
    breaker.check(now_ms)
    breaker.eject(Trip.CONSECUTIVE, now_ms)
    assert breaker.is_probe_due(now_ms + SETTINGS.probe_ms)


EVENTS = st.lists(
    st.tuples(st.sampled_from("sfcopex"), st.integers(0, 40_000)) | st.tuples(st.just("f"), st.just(1)), max_size=120
)


@given(EVENTS, st.integers(0, 2**32))
def test_no_history_breaks_the_machine(events: list[tuple[str, int]], seed: int) -> None:
    breaker, now_ms = Breaker(SETTINGS, random.Random(seed)), 0
    for kind, step_ms in events:
        now_ms += step_ms
        trip = None
        if kind == "s":
            breaker.succeed(float(step_ms), now_ms)
        elif kind == "f":
            trip = breaker.fail(float(step_ms), now_ms)
        elif kind == "c":
            trip = breaker.check(now_ms)
        elif kind == "o":
            trip = breaker.take_oom(now_ms)
        elif kind == "p" and breaker.is_probe_due(now_ms):
            breaker.begin_probe(now_ms)
        elif kind == "e":
            breaker.end_probe(list(Probe)[step_ms % 3], now_ms)
        assert not (trip and breaker.phase is Phase.OUT), "a node that is out trips nothing"
        if trip:
            breaker.eject(trip, now_ms)
        assert 0.0 <= breaker.weight(now_ms) <= 1.0
        assert (breaker.weight(now_ms) == 0.0) == (breaker.phase is Phase.OUT)


# --- hints of other routers


def test_hint_alone_takes_nothing_out() -> None:
    breaker = make()
    assert breaker.take_hint(0, 1_000)
    assert breaker.check(1_000) is None
    assert (breaker.phase, breaker.weight(1_000)) == (Phase.IN, 1.0)


def test_hint_has_the_node_tried_at_once_and_only_once() -> None:
    breaker = make()
    assert not breaker.is_probe_due(1_000)
    breaker.take_hint(0, 1_000)
    assert breaker.is_probe_due(1_000)
    breaker.begin_probe(1_000)
    breaker.end_probe(Probe.GOOD, 1_100)
    breaker.take_hint(0, 2_000)
    assert not breaker.is_probe_due(2_000)


def test_bad_try_after_a_hint_proposes_to_eject() -> None:
    breaker = make()
    breaker.take_hint(0, 1_000)
    breaker.begin_probe(1_000)
    assert breaker.end_probe(Probe.BAD, 1_100) is Trip.HINTED


@pytest.mark.parametrize("probe", [Probe.GOOD, Probe.BUSY])
def test_other_try_after_a_hint_proposes_nothing(probe: Probe) -> None:
    breaker = make()
    breaker.take_hint(0, 1_000)
    breaker.begin_probe(1_000)
    assert breaker.end_probe(probe, 1_100) is None


def test_fewer_failures_are_enough_while_a_hint_is_young() -> None:
    breaker = make()
    breaker.take_hint(0, 1_000)
    assert breaker.fail(5, 1_001) is None
    assert breaker.fail(5, 1_002) is Trip.CONSECUTIVE


def test_hint_that_got_old_changes_nothing() -> None:
    breaker = make()
    breaker.take_hint(9_000, 1_000)
    late_ms = 1_000 + SETTINGS.hint_max_age_ms - 9_000
    assert not breaker.is_probe_due(late_ms)
    assert [breaker.fail(5, late_ms + number) for number in range(4)] == [None] * 4


@pytest.mark.parametrize("age_ms", [SETTINGS.hint_max_age_ms, SETTINGS.hint_max_age_ms + 1, 2**60])
def test_old_hint_is_not_taken(age_ms: int) -> None:
    assert not make().take_hint(age_ms, 100_000)


def test_node_that_is_out_takes_no_hint() -> None:
    assert not out(make()).take_hint(0, 10)


def test_hint_that_was_wrong_is_followed_again_after_its_life_only() -> None:
    breaker = make()
    breaker.take_hint(0, 1_000)
    breaker.begin_probe(1_000)
    breaker.end_probe(Probe.GOOD, 1_000)
    times_ms = range(1_000, 1_000 + 2 * SETTINGS.hint_max_age_ms, 1_000)
    due_ms = []
    for now_ms in times_ms:
        breaker.take_hint(0, now_ms)
        if breaker.is_probe_due(now_ms):
            due_ms.append(now_ms)
            breaker.begin_probe(now_ms)
            breaker.end_probe(Probe.GOOD, now_ms)
    assert due_ms == [1_000 + SETTINGS.hint_max_age_ms]


def test_others_are_told_the_age_of_the_last_failure() -> None:
    breaker = make()
    assert breaker.hint_age_ms(0) is None
    out(breaker, 1_000)
    assert breaker.hint_age_ms(1_400) == 400
    breaker.begin_probe(2_000)
    breaker.end_probe(Probe.BAD, 2_100)
    assert breaker.hint_age_ms(2_150) == 50
    heal(breaker, 3_100)
    assert breaker.hint_age_ms(9_000) is None
