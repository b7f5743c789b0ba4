"""How long a silence may be follows how long answers take."""

from helpers.as_written import run_both_ways
from ssop_chassis.pace import HALF_LIFE_S, MOST_TIMES, Pace

way = run_both_ways("ssop_chassis.pace", "Pace")
FLOOR_S = 0.05


def test_fast_answers_leave_the_bound_where_it_is_set() -> None:
    pace = Pace(FLOOR_S)
    for second in range(100):
        pace.observe(FLOOR_S / 4, float(second))
    assert pace.bound_s(100.0) == FLOOR_S


def test_a_slow_answer_lengthens_it() -> None:
    pace = Pace(FLOOR_S)
    pace.observe(0.04, 1.0)
    pace.observe(0.001, 1.0)
    assert pace.bound_s(1.0) == 0.16


def test_what_was_slow_is_forgotten_by_halves() -> None:
    pace = Pace(FLOOR_S)
    pace.observe(0.1, 1.0)
    assert abs(pace.bound_s(1.0 + HALF_LIFE_S) - 0.2) < 1e-9
    assert pace.bound_s(1.0 + 20 * HALF_LIFE_S) == FLOOR_S


def test_it_never_exceeds_its_most() -> None:
    pace = Pace(FLOOR_S)
    pace.observe(3600.0, 1.0)
    assert pace.bound_s(1.0) == pace.most_s == MOST_TIMES * FLOOR_S


def test_backing_off_doubles_it() -> None:
    pace = Pace(FLOOR_S)
    pace.back_off(pace.bound_s(1.0), 1.0)
    assert pace.bound_s(1.0) == 2 * FLOOR_S


def test_a_clock_that_steps_back_lengthens_nothing() -> None:
    pace = Pace(FLOOR_S)
    pace.observe(0.1, 100.0)
    assert pace.bound_s(0.0) == 0.4
