"""Whether the machine has time to spare."""

from ssop_rag.core.pressure import Pressure


def test_work_on_a_free_core_changes_nothing() -> None:
    pressure = Pressure(2)
    pressure.record(0, wall_ms=24, cpu_ms=10)
    assert not pressure.is_high(0)


def test_work_that_had_to_wait_is_a_sign_for_a_while() -> None:
    pressure = Pressure(2)
    pressure.record(0, wall_ms=26, cpu_ms=10)
    assert [pressure.is_high(now_ms) for now_ms in (0, 499, 500)] == [True, True, False]


def test_signs_in_a_row_last_longer_up_to_a_bound() -> None:
    pressure, now_ms, held = Pressure(2), 0, []
    for _ in range(7):
        pressure.record(now_ms, wall_ms=100, cpu_ms=10)
        start_ms = now_ms
        while pressure.is_high(now_ms):
            now_ms += 100
        held.append(now_ms - start_ms)
    assert held == [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]


def test_one_good_sign_is_enough() -> None:
    pressure = Pressure(2)
    for _ in range(5):
        pressure.record(0, wall_ms=100, cpu_ms=10)
    pressure.record(0, wall_ms=11, cpu_ms=10)
    assert not pressure.is_high(0)


def test_stretch_of_0_is_no_sign() -> None:
    pressure = Pressure(0)
    pressure.record(0, wall_ms=1_000, cpu_ms=1)
    assert not pressure.is_high(0)
