"""The cascade's judgement: what is enough, what counts, and which threshold sends which share."""

import math
from dataclasses import replace
from typing import Any

import pytest

from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import CascadeReason, Confidence, FieldConfidence
from ssop_router.core.cascade import (
    CascadeSettings,
    Evidence,
    Judgement,
    confidence_of,
    describe,
    judge,
    share_below,
    threshold_for,
)

C = CascadeReason
SETTINGS = CascadeSettings(fields=2, min_confidence=0.6, min_text_confidence=0.4)


def field(confidence: float = 0.9, **fields: Any) -> FieldConfidence:
    logprob = math.log(confidence)
    values = {"seq": 2, "tokens": 1, "sum_logprob": logprob, "min_logprob": logprob, "is_choice": True, **fields}
    return FieldConfidence(**values)


def evidence(*fields: FieldConfidence, has_choices: bool = True, **more: Any) -> Evidence:
    found = Evidence().take(Confidence(fields=fields, has_choices=has_choices), SETTINGS)
    return replace(found, **more)


def outcome(found: Judgement | None) -> int | None:
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Evidence(), None),
        (evidence(field(0.9)), None),
        (evidence(field(0.9), field(0.7)), C.CASCADE_REASON_KEPT_CONFIDENT),
        (evidence(field(0.9), field(0.5)), C.CASCADE_REASON_ESCALATED_UNSURE),
        (evidence(field(0.9), field(0.9), field(0.1)), C.CASCADE_REASON_KEPT_CONFIDENT),
        (evidence(field(0.9), is_over=True), C.CASCADE_REASON_KEPT_CONFIDENT),
        (evidence(field(0.3), is_over=True), C.CASCADE_REASON_ESCALATED_UNSURE),
        (Evidence(is_over=True), C.CASCADE_REASON_ESCALATED_LATE),
        (Evidence(verdict=Verdict.VERDICT_OK), C.CASCADE_REASON_KEPT_UNSCORED),
        (evidence(field(tokens=0), field(tokens=0)), C.CASCADE_REASON_KEPT_UNSCORED),
        (evidence(field(0.9, is_null=True), field(0.9, is_null=True)), C.CASCADE_REASON_ESCALATED_ABSTAINED),
        (evidence(field(0.9, is_null=True), field(0.9)), C.CASCADE_REASON_KEPT_CONFIDENT),
        (evidence(field(0.9), verdict=Verdict.VERDICT_OK), C.CASCADE_REASON_KEPT_CONFIDENT),
        (evidence(field(0.9), verdict=Verdict.VERDICT_INVALID), C.CASCADE_REASON_ESCALATED_INVALID),
    ],
)
def test_judgement(shown: Evidence, expected: int | None) -> None:
    assert outcome(judge(shown, SETTINGS)) == expected


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (IncompleteReason.INCOMPLETE_REASON_STOPPED_EARLY, C.CASCADE_REASON_ESCALATED_INCOMPLETE),
        (IncompleteReason.INCOMPLETE_REASON_CONTENT_FILTER, C.CASCADE_REASON_ESCALATED_INCOMPLETE),
        (IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED, C.CASCADE_REASON_ESCALATED_FAILED),
        (IncompleteReason.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS, C.CASCADE_REASON_KEPT_CONFIDENT),
    ],
)
def test_answer_that_was_cut(why: IncompleteReason.ValueType, expected: int) -> None:
    shown = evidence(field(0.9), verdict=Verdict.VERDICT_INCOMPLETE, incomplete_reason=why)
    assert outcome(judge(shown, SETTINGS)) == expected


def test_text_is_not_judged_while_a_choice_is_to_come() -> None:
    text = field(0.1, seq=0, is_choice=False)
    assert judge(evidence(text), SETTINGS) is None
    assert outcome(judge(evidence(text, has_choices=False), SETTINGS)) == C.CASCADE_REASON_ESCALATED_UNSURE


def test_choices_say_more_than_text() -> None:
    shown = evidence(field(0.1, is_choice=False), field(0.9), field(0.9))
    assert outcome(judge(shown, SETTINGS)) == C.CASCADE_REASON_KEPT_CONFIDENT


def test_only_the_first_text_counts() -> None:
    shown = evidence(field(0.9, is_choice=False), field(0.1, is_choice=False), has_choices=False)
    assert outcome(judge(shown, SETTINGS)) == C.CASCADE_REASON_KEPT_CONFIDENT


def test_choice_is_as_sure_as_its_least_sure_token() -> None:
    found = confidence_of(FieldConfidence(tokens=3, sum_logprob=-3.0, min_logprob=-2.0, is_choice=True))
    assert found == pytest.approx(math.exp(-2))


def test_text_is_as_sure_as_its_mean_token() -> None:
    found = confidence_of(FieldConfidence(tokens=3, sum_logprob=-3.0, min_logprob=-2.0))
    assert found == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_confidence(logprob: float) -> None:
    assert confidence_of(FieldConfidence(tokens=1, sum_logprob=logprob, min_logprob=logprob, is_choice=True)) == 0.0


def test_probability_above_one_is_one() -> None:
    assert confidence_of(FieldConfidence(tokens=1, sum_logprob=5.0, min_logprob=5.0, is_choice=True)) == 1.0


def test_explanation_names_the_thresholds() -> None:
    assert "0.6" in describe(SETTINGS)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0)])
def test_threshold_sends_the_share_that_was_asked(share: float, expected: float) -> None:
    confidences = [0.1, 0.4, 0.6, 0.9]
    assert share_below(confidences, threshold_for(confidences, share)) == expected


def test_ties_are_not_split() -> None:
    confidences = [0.5, 0.5, 0.5, 0.9]
    assert share_below(confidences, threshold_for(confidences, 0.5)) == 0


@pytest.mark.parametrize(("confidences", "share"), [([], 0.5), ([0.5], 1.5), ([0.5], -0.1)])
def test_threshold_that_has_no_meaning(confidences: list[float], share: float) -> None:
    with pytest.raises(ValueError, match=r"share|confidences"):
        threshold_for(confidences, share)
