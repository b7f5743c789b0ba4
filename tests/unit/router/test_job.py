"""What the ends of an answer say together."""

import pytest

from helpers.as_written import run_both_ways
from ssop.v1.frame_pb2 import End, FinishReason, IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import Usage
from ssop_router.job import Ending

way = run_both_ways("ssop_router.job", "Ending")

OK, INVALID, INCOMPLETE = Verdict.VERDICT_OK, Verdict.VERDICT_INVALID, Verdict.VERDICT_INCOMPLETE
CUT = End(verdict=INCOMPLETE, incomplete_reason=IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED)


def take(*ends: End) -> Ending:
    ending = Ending()
    for end in ends:
        ending.take(end)
    return ending


@pytest.mark.parametrize("verdict", [OK, INVALID, INCOMPLETE, 99])
def test_an_answer_has_ended_with_any_verdict(verdict: Verdict.ValueType) -> None:
    assert take(End(verdict=verdict)).has_ended


@pytest.mark.parametrize("ends", [[], [End()]])
def test_an_answer_has_not_ended_without_a_verdict(ends: list[End]) -> None:
    assert not take(*ends).has_ended


def test_a_verdict_of_a_later_version_is_that_of_an_answer_that_is_not_whole() -> None:
    verdict: Verdict.ValueType = 99  # type: ignore[assignment]
    assert take(End(verdict=verdict)).verdict == INCOMPLETE


def test_the_gravest_verdict_stays() -> None:
    ending = take(End(verdict=OK), CUT, End(verdict=OK))
    assert (ending.verdict, ending.incomplete_reason) == (INCOMPLETE, CUT.incomplete_reason)


def test_the_last_usage_counts() -> None:
    assert take(CUT, End(verdict=OK, usage=Usage(output_tokens=7))).usage.output_tokens == 7


@pytest.mark.parametrize("end", [End(verdict=OK), End(verdict=OK, finish_reason=FinishReason.FINISH_REASON_STOP)])
def test_a_whole_answer_may_be_stored(end: End) -> None:
    assert take(end).is_storable


@pytest.mark.parametrize("end", [CUT, End(verdict=OK, finish_reason=FinishReason.FINISH_REASON_TOOL_CALLS)])
def test_an_answer_that_is_cut_or_asks_for_something_may_not(end: End) -> None:
    assert not take(end).is_storable
