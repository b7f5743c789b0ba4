"""What is a lie, what is a recovery, and that every request ends once."""

from typing import Any

import pytest

from ssop_cli.drill.ledger import (
    CLEAN_RUN,
    OVERDUE_S,
    Kind,
    Ledger,
    Outcome,
    Verdict,
    changed_field,
    clean_since_s,
    lie_of,
    tally,
    unfounded,
)

GOOD = {"mood": "good", "is_urgent": True, "stars": 3}
OK = Verdict(Kind.OK)
ERROR = Verdict(Kind.ERROR, "NO_BACKEND")


def outcomes_of(verdicts: list[Verdict], first_s: float = 0.0) -> list[Outcome]:
    """One outcome a second, each begun half a second before its end."""
    return [
        Outcome(f"r{number}", "p", first_s + number - 0.5, first_s + number, verdict)
        for number, verdict in enumerate(verdicts)
    ]


def judge(outcomes: list[Outcome], **changes: Any) -> Any:
    """The tally of outcomes of a fault at second 0 with a bound of 5 s."""
    return tally("f", "how", 5.0, outcomes, 20.0, **{"injected_s": 0.0, "lifted_s": 0.0} | changes)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**GOOD, "more": 1},
        {"mood": "good", "is_urgent": True},
        {**GOOD, "mood": "furious"},
        {**GOOD, "is_urgent": 1},
        {**GOOD, "stars": 0},
        {**GOOD, "stars": 6},
        {**GOOD, "stars": True},
        {**GOOD, "stars": 2.0},
    ],
)
def test_documents_that_break_the_schema_are_lies(document: Any) -> None:
    assert lie_of([], document)


def test_a_good_document_whose_fields_were_seen_is_no_lie() -> None:
    assert lie_of(list(GOOD.items()), GOOD) == ""


def test_a_field_that_the_whole_contradicts_is_a_lie() -> None:
    assert "stars" in lie_of([("stars", 4)], GOOD)


def test_a_field_that_is_sent_twice_with_other_values_has_changed() -> None:
    assert changed_field([("stars", 4), ("stars", 5)], None) == "stars"


def test_a_field_that_is_sent_twice_alike_has_not_changed() -> None:
    assert changed_field([("stars", 4), ("stars", 4)], None) == ""


def test_true_and_one_are_different_values() -> None:
    assert changed_field([("stars", 1), ("stars", True)], None) == "stars"


def test_a_request_ends_once() -> None:
    ledger = Ledger()
    ledger.begin("r0", 10.0)
    ledger.end(outcomes_of([OK])[0])
    assert (ledger.faults, ledger.open_requests()) == ([], [])


def test_a_second_outcome_is_a_fault_of_the_book() -> None:
    ledger = Ledger()
    ledger.begin("r0", 10.0)
    for _ in range(2):
        ledger.end(outcomes_of([OK])[0])
    assert ledger.faults == ["request r0 has a second outcome"]


def test_an_outcome_without_a_request_is_a_fault_of_the_book() -> None:
    ledger = Ledger()
    ledger.end(outcomes_of([OK])[0])
    assert ledger.faults == ["request r0 has an outcome and was never begun"]


def test_an_id_that_is_used_again_is_a_fault_of_the_book() -> None:
    ledger = Ledger()
    ledger.begin("r0", 10.0)
    ledger.begin("r0", 10.0)
    assert ledger.faults == ["request r0 was begun twice"]


def test_a_request_is_overdue_some_time_after_its_deadline() -> None:
    ledger = Ledger()
    ledger.begin("r0", 10.0)
    assert (ledger.overdue(10.0 + OVERDUE_S), ledger.overdue(10.1 + OVERDUE_S)) == ([], ["r0"])


def test_spans_that_touch_share_no_outcome() -> None:
    ledger = Ledger()
    for outcome in outcomes_of([OK] * 4):
        ledger.begin(outcome.request_id, 10.0)
        ledger.end(outcome)
    assert [len(ledger.window(0.0, 2.0)), len(ledger.window(2.0))] == [2, 2]


def test_a_clean_run_begins_with_its_first_answer() -> None:
    assert clean_since_s(outcomes_of([OK, ERROR] + [OK] * CLEAN_RUN), 0.0) == 2.0


@pytest.mark.parametrize("breaker", [ERROR, Verdict(Kind.DEGRADED, level=2), Verdict(Kind.WRONG, "x")])
def test_anything_but_a_good_answer_breaks_a_run(breaker: Verdict) -> None:
    half = [OK] * (CLEAN_RUN - 1)
    assert clean_since_s(outcomes_of([*half, breaker, *half]), 0.0) is None


def test_answers_before_a_fault_is_lifted_are_no_recovery() -> None:
    assert clean_since_s(outcomes_of([OK] * (CLEAN_RUN + 3)), 3.0) == 3.0


def test_a_recovery_within_its_bound_is_held() -> None:
    found = judge(outcomes_of([ERROR] * 4 + [OK] * CLEAN_RUN))
    assert (found.is_good, found.recovered_s, found.errors) == (True, 4.0, {"NO_BACKEND": 4})


def test_a_recovery_after_its_bound_is_broken() -> None:
    assert not judge(outcomes_of([ERROR] * 6 + [OK] * CLEAN_RUN)).is_good


def test_no_recovery_is_broken() -> None:
    assert not judge(outcomes_of([OK])).is_good


def test_one_lie_breaks_a_fault() -> None:
    found = judge(outcomes_of([Verdict(Kind.WRONG, "stars")] + [OK] * CLEAN_RUN))
    assert (found.is_good, found.wrong) == (False, ["r0: stars"])


def test_a_drain_may_not_fail_what_was_in_flight() -> None:
    outcomes = [Outcome("r", "p", -1.0, 0.5, ERROR), *outcomes_of([OK] * CLEAN_RUN, 1.0)]
    found = [judge(outcomes, spares_in_flight=spares) for spares in (False, True)]
    assert [(one.is_good, one.errors_in_flight) for one in found] == [(True, 1), (False, 1)]


def test_degraded_answers_are_counted_by_level() -> None:
    degraded = [Verdict(Kind.DEGRADED, level=level) for level in (2, 3, 2)]
    assert judge(outcomes_of(degraded)).degraded == {"2": 2, "3": 1}


def stored(values: tuple[Any, ...]) -> Verdict:
    """A good answer from the store."""
    return Verdict(Kind.OK, is_stored=True, values=values)


def test_a_stored_answer_that_somebody_was_given_is_founded() -> None:
    assert unfounded(outcomes_of([Verdict(Kind.OK, values=(1,)), stored((1,))])) == []


def test_a_stored_answer_that_nobody_was_given_is_not() -> None:
    assert len(unfounded(outcomes_of([Verdict(Kind.OK, values=(1,)), stored((2,))]))) == 1


def test_a_request_that_broke_may_have_been_stored() -> None:
    assert unfounded(outcomes_of([ERROR, stored((2,))])) == []
