"""The arithmetic on loads."""

from dataclasses import replace

import pytest

from helpers.load_figures import (
    LoadOrder,
    LoadResult,
    growth,
    is_saturated,
    judge_rates,
    others_share,
    percentile,
    slope,
)
from helpers.load_table import Bar, Row

RESULT = LoadResult(
    rate=10_500.0,
    done=52_500,
    faults={},
    checked=1_050,
    flaws={},
    p50_ms=0.5,
    p99_ms=1.4,
    p999_ms=2.0,
    max_ms=3.0,
    first_p50_ms=0.4,
    late_p99_ms=0.1,
    messages=3.0,
    answer_bytes=567.0,
    cpu_us={"client": 4.0, "router": 90.0},
    client_share=0.1,
    busy_share=1.0,
    others_share=0.0,
    steal_share=0.0,
    is_saturated=False,
)


def test_percentile_is_a_value_that_was_measured() -> None:
    assert [percentile([1.0, 2.0, 3.0, 10.0], share) for share in (0.5, 0.75, 0.99, 1.0)] == [2.0, 3.0, 10.0, 10.0]


def test_percentile_of_nothing_is_0() -> None:
    assert percentile([], 0.99) == 0.0


@pytest.mark.parametrize(
    ("asked", "done", "expected"),
    [(1_000, 999, False), (1_000, 960, True), (0, 5, False)],
    ids=["kept", "less", "closed"],
)
def test_less_than_what_was_asked_is_saturated(asked: float, done: float, expected: bool) -> None:
    assert is_saturated(asked, done) is expected


def test_what_was_not_measured_went_to_others() -> None:
    assert others_share(0.9, 1.0, 1.0, 2) == pytest.approx(0.4)


def test_others_never_gave_time_back() -> None:
    assert others_share(0.4, 1.0, 1.0, 2) == 0.0


def test_slope_is_that_of_a_line() -> None:
    assert slope([(0.0, 5.0), (10.0, 25.0), (20.0, 45.0)]) == pytest.approx(2.0)


def test_growth_leaves_the_warm_up_out() -> None:
    samples = [(0, {"router": 0}), (100, {"router": 9_000}), (150, {"router": 9_000}), (200, {"router": 9_050})]
    grown = growth(samples, 10_000, 0.5)
    assert grown["router"] == pytest.approx(10_000 * 50 / 100)


def test_leak_is_found_in_steps_of_pages() -> None:
    samples = [(done, {"cache": 4_096 * (done // 1_000)}) for done in range(0, 100_000, 250)]
    assert growth(samples, 10_000, 0.5)["cache"] == pytest.approx(40_960, rel=0.05)


@pytest.mark.parametrize(
    ("bar", "changes", "expected"),
    [
        (Bar(), {}, ""),
        (Bar(rate=10_000), {}, "10,000/s: met"),
        (Bar(rate=20_000), {}, "20,000/s: not met"),
        (Bar(p50_ms=0.6, p99_ms=1.5), {}, "p50 0.6, p99 1.5: met"),
        (Bar(p50_ms=0.6, p99_ms=1.3), {}, "p50 0.6, p99 1.3: not met"),
        (Bar(p99_ms=1.5), {"is_saturated": True}, "p99 1.5: not met"),
        (Bar(rate=10_000), {"faults": {"status 14": 1}}, "10,000/s: not met"),
        (Bar(rate=10_000), {"flaws": {"degraded or stored": 1}}, "10,000/s: not met"),
    ],
)
def test_bar_is_met_by_whole_answers_alone(bar: Bar, changes: dict[str, object], expected: str) -> None:
    assert bar.verdict(replace(RESULT, **changes)) == expected  # type: ignore[arg-type]


def test_result_comes_back_as_it_was() -> None:
    result = replace(RESULT, samples=[(10, {"router": 4_096})])
    assert LoadResult.from_json(result.to_json()) == result


def test_row_of_a_file_holds_no_key() -> None:
    order = LoadOrder("native", ["127.0.0.1:1"], key="ssop_secret", pids={"router": 1})
    assert "ssop_secret" not in str(Row("mesh", "native", order, RESULT).to_json())


@pytest.mark.parametrize(
    ("costs", "expected"),
    [({}, None), ({100.0: 900.0}, None), ({100.0: 900.0, 200.0: 500.0}, True), ({100.0: 900.0, 200.0: 400.0}, False)],
    ids=["none", "one", "flat", "steep"],
)
def test_cost_is_flat_or_not_only_over_several_rates(costs: dict[float, float], expected: bool | None) -> None:
    assert judge_rates(costs)["is_flat"] is expected
