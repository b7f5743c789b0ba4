"""What a run over many posts came to."""

import pytest

from ssop_cli.summary import Outcome, percentile, summarise


def outcome(number: int, verdict: str = "ok", **changes: object) -> Outcome:
    values: dict[str, object] = {
        "first_field_ms": 100.0 * number,
        "total_ms": 1000.0 * number,
        "tier": "lite",
        "cache": "miss",
        "frames_sent": 15,
        "frames_received": 15,
        "frames_verified": 15,
    }
    return Outcome(f"post-{number}", verdict, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2.0), (0.95, 4.0), (1.0, 4.0), (0.01, 1.0)])
def test_percentiles_are_values_that_were_measured(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None


def test_a_run_of_good_answers_is_good() -> None:
    summary = summarise([outcome(1), outcome(2)], 4.0)
    assert summary.is_good
    assert summary.verdicts == {"ok": 2}


@pytest.mark.parametrize("verdict", ["invalid", "incomplete", "error"])
def test_one_bad_answer_makes_a_bad_run(verdict: str) -> None:
    assert not summarise([outcome(1), outcome(2, verdict)], 4.0).is_good


def test_a_lost_frame_makes_a_bad_run() -> None:
    summary = summarise([outcome(1, frames_received=14)], 1.0)
    assert (summary.frames_lost, summary.is_good) == (1, False)


def test_no_posts_are_no_good_run() -> None:
    assert not summarise([], 0.0).is_good


def test_errors_do_not_count_as_latencies() -> None:
    summary = summarise([outcome(1), outcome(9, "error", reason="OVERLOADED")], 1.0)
    assert summary.total_ms.p95 == 1000.0
    assert summary.reasons == {"OVERLOADED": 1}


def test_replays_and_followers_are_hits() -> None:
    outcomes = [outcome(number, cache=cache) for number, cache in enumerate(("hit", "follower", "miss", "policy_off"))]
    assert summarise(outcomes, 1.0).cache_hits == 2


def test_shares_of_tiers_are_counted() -> None:
    assert summarise([outcome(1), outcome(2, tier="full"), outcome(3)], 1.0).tiers == {"lite": 2, "full": 1}


def test_the_summary_is_json() -> None:
    assert summarise([outcome(1)], 1.0).to_json()["first_field_ms"] == {"p50": 100.0, "p95": 100.0}
