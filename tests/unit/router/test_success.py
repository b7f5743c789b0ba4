"""Outcomes of attempts: what counts, how it fades, and when too much fails."""

import pytest

from helpers.as_written import run_both_ways
from ssop.v1.errors_pb2 import ErrorReason
from ssop_router.core.success import NO_OUTCOMES, CacheRule, Outcome, Outcomes, judge

way = run_both_ways("ssop_router.core.success", "NO_OUTCOMES", "Outcome", "Outcomes", "judge")

R = ErrorReason
RULE = CacheRule(windows=3, window_ms=10_000, min_outcomes=20, max_failure_ratio=0.15)


def after(*outcomes: Outcome, at_ms: int = 0) -> Outcomes:
    found = Outcomes(half_life_ms=30_000, window_ms=10_000)
    for outcome in outcomes:
        found.record(outcome, at_ms)
    return found


@pytest.mark.parametrize(
    "reason",
    [
        R.ERROR_REASON_REQUEST_INVALID,
        R.ERROR_REASON_SCHEMA_REFUSED,
        R.ERROR_REASON_CONTEXT_EXCEEDED,
        R.ERROR_REASON_OUTPUT_INVALID,
        R.ERROR_REASON_CANCELLED,
        R.ERROR_REASON_DEADLINE_EXCEEDED,
    ],
)
def test_callers_faults_are_neutral(reason: ErrorReason.ValueType) -> None:
    assert judge(reason) is Outcome.NEUTRAL


def test_full_node_is_busy_and_not_failing() -> None:
    assert judge(R.ERROR_REASON_OVERLOADED) is Outcome.BUSY


def test_backend_that_fails_counts() -> None:
    assert judge(R.ERROR_REASON_BACKEND_FAILED) is Outcome.FAILURE


def test_thousand_bad_requests_change_nothing() -> None:
    assert (
        after(*[Outcome.NEUTRAL, Outcome.BUSY] * 1000).view() == Outcomes(half_life_ms=30_000, window_ms=10_000).view()
    )


def test_nothing_known_is_hopeful() -> None:
    estimate = NO_OUTCOMES.estimate(0)
    assert estimate.value > 0.9
    assert estimate.spread > 0.05
    assert NO_OUTCOMES.risk(0) == 0


def test_failures_lower_the_estimate_and_narrow_it() -> None:
    few, many = (after(*[Outcome.FAILURE] * n).view().estimate(0) for n in (5, 100))
    assert NO_OUTCOMES.estimate(0).value > few.value > many.value
    assert few.spread > many.spread


def test_risk_of_a_node_that_always_fails() -> None:
    assert after(*[Outcome.FAILURE] * 20).view().risk(0) > 1


def test_success_makes_no_risk() -> None:
    assert after(*[Outcome.SUCCESS] * 20).view().risk(0) == 0


def test_outcomes_fade_back_to_what_is_believed_at_first() -> None:
    view = after(*[Outcome.FAILURE] * 20).view()
    assert view.estimate(30_000).value > view.estimate(0).value
    assert view.estimate(3_600_000) == pytest.approx(NO_OUTCOMES.estimate(0))


def test_uncertainty_grows_with_age() -> None:
    view = after(*[Outcome.SUCCESS] * 50).view()
    assert view.estimate(120_000).spread > view.estimate(0).spread


def test_age_is_that_of_the_last_outcome() -> None:
    assert after(Outcome.SUCCESS, at_ms=500).view().age_ms(800) == 300
    assert NO_OUTCOMES.age_ms(800) is None


def filled(*windows: tuple[int, int]) -> Outcomes:
    """Windows of (successes, failures), one after the other."""
    found = Outcomes(half_life_ms=30_000, window_ms=10_000)
    for number, (good, bad) in enumerate(windows):
        for outcome in [Outcome.SUCCESS] * good + [Outcome.FAILURE] * bad:
            found.record(outcome, number * 10_000 + 5)
    return found


@pytest.mark.parametrize(
    ("windows", "applies"),
    [
        ([(16, 4)] * 3, True),
        ([(17, 3)] * 3, False),
        ([(16, 4), (20, 0), (16, 4)], False),
        ([(15, 4)] * 3, False),
        ([(16, 4)] * 2, False),
        ([(20, 0), (0, 20), (0, 20), (0, 20)], True),
    ],
)
def test_three_failing_windows(windows: list[tuple[int, int]], applies: bool) -> None:
    assert RULE.applies(filled(*windows).windows(), len(windows) * 10_000) is applies


def test_window_that_still_fills_does_not_count() -> None:
    windows = filled((16, 4), (16, 4), (0, 20)).windows()
    assert not RULE.applies(windows, 29_999)


def test_rule_ends_with_a_quiet_window() -> None:
    windows = filled(*[(0, 20)] * 3).windows()
    assert RULE.applies(windows, 30_000)
    assert not RULE.applies(windows, 40_000)


def test_rule_can_be_switched_off() -> None:
    assert not CacheRule(windows=0).applies(filled(*[(0, 20)] * 3).windows(), 30_000)


def test_windows_are_bounded() -> None:
    assert len(filled(*[(1, 0)] * 40).windows()) == 12
