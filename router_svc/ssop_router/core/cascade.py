"""Whether the full tier takes over from the lite one, by what lite's first fields say. Pure.

Judged before the commit point, and once. Two things count: trouble that anybody can see (the schema broken, nothing in
time, nothing but nulls), and the confidence of the model in what it chose, where its backend gives probabilities.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import CascadeReason, Confidence, FieldConfidence, Tier, TierReason
from ssop_chassis.errors import MeshError
from ssop_router.core.decision import Decision, Features

R = ErrorReason
# What a tier refuses for good may be right for the other one.
_UNFIT: Final = frozenset(
    {R.ERROR_REASON_CONTEXT_EXCEEDED, R.ERROR_REASON_CONTENT_UNSUPPORTED, R.ERROR_REASON_LOGPROBS_UNSUPPORTED}
)
# Limits that the caller set cut an answer of the full tier at the same place.
_CALLERS_LIMITS: Final = frozenset(
    {IncompleteReason.INCOMPLETE_REASON_MAX_OUTPUT_TOKENS, IncompleteReason.INCOMPLETE_REASON_UNSPECIFIED}
)


@dataclass(frozen=True, slots=True)
class CascadeSettings:
    """How much of a lite answer is judged, and by what.

    `fields` are the first values chosen from few that are waited for; `text_tokens` the first of free text. A value's
    confidence is the probability of its least sure token, a text's the geometric mean over its tokens; both are from
    0 to 1, after the grammar's mask. What lies below its threshold goes to the full tier.
    """

    fields: int = 2
    text_tokens: int = 16
    min_confidence: float = 0.6
    min_text_confidence: float = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a lite node has shown. `choices` are the confidences of values chosen from few, None where there is none.

    `text` is that of the first free text. `has_choices` says that the schema has such values; `is_over`, that no
    more is waited for.
    """

    choices: tuple[float | None, ...] = ()
    text: float | None = None
    values: int = 0
    nulls: int = 0
    has_choices: bool = False
    verdict: Verdict.ValueType = Verdict.VERDICT_UNSPECIFIED
    incomplete_reason: IncompleteReason.ValueType = IncompleteReason.INCOMPLETE_REASON_UNSPECIFIED
    is_over: bool = False

    def take(self, message: Confidence, settings: CascadeSettings) -> "Evidence":
        """With what a node says; keeps no more than is judged."""
        choices, text = list(self.choices), self.text
        for field in message.fields:
            found = confidence_of(field)
            if field.is_choice:
                choices.append(found)
            elif text is None:
                text = found
        whole = [field for field in message.fields if field.seq]
        return replace(
            self,
            choices=tuple(choices[: settings.fields]),
            text=text,
            values=self.values + len(whole),
            nulls=self.nulls + sum(field.is_null for field in whole),
            has_choices=message.has_choices,
        )


class Judgement(NamedTuple):
    """Whose answer it is. `confidence` is what it was judged by, None where there was none."""

    is_kept: bool
    reason: CascadeReason.ValueType
    confidence: float | None = None


def judge(evidence: Evidence, settings: CascadeSettings) -> Judgement | None:
    """The judgement, or None while there is too little to judge by. Never None once `is_over` or at an end."""
    has_ended = evidence.verdict != Verdict.VERDICT_UNSPECIFIED
    if (breach := _find_breach(evidence)) is not None:
        return breach
    if not (has_ended or evidence.is_over or _is_enough(evidence, settings)):
        return None
    scores = [choice for choice in evidence.choices if choice is not None]
    if evidence.values and evidence.nulls == evidence.values:
        found = _escalate(CascadeReason.CASCADE_REASON_ESCALATED_ABSTAINED)
    elif scores:
        found = _compare(min(scores), settings.min_confidence)
    elif evidence.text is not None:
        found = _compare(evidence.text, settings.min_text_confidence)
    elif evidence.values or has_ended:
        found = Judgement(True, CascadeReason.CASCADE_REASON_KEPT_UNSCORED)
    else:
        found = _escalate(CascadeReason.CASCADE_REASON_ESCALATED_LATE)
    return found


def confidence_of(field: FieldConfidence) -> float | None:
    """From 0 to 1; None where the backend gives no probabilities. What is no number is no confidence: 0."""
    if not field.tokens:
        return None
    logprob = field.min_logprob if field.is_choice else field.sum_logprob / field.tokens
    return math.exp(min(0.0, logprob)) if math.isfinite(logprob) else 0.0


def open_cascade(decide: Callable[[Features], Decision], features: Features) -> Decision:
    """The first decision of a cascade: lite, or full at once where the request does not fit lite.

    Raises what `decide` raises of either tier.
    """
    try:
        return decide(features)
    except MeshError as error:
        if error.reason not in _UNFIT:
            raise
    forced = replace(features.policy, tier=Tier.TIER_FULL, is_cascade=False)
    return decide(features._replace(policy=forced))._replace(tier_reason=TierReason.TIER_REASON_CASCADE)


def escalate(decision: Decision) -> Decision:
    """The decision after the full tier has taken over; its nodes are chosen anew."""
    return decision._replace(tier=Tier.TIER_FULL, tier_reason=TierReason.TIER_REASON_CASCADE, candidate=None)


def describe(settings: CascadeSettings) -> str:
    """A line of the explanation."""
    return (
        f"cascade: lite answers first; full takes over where lite is less than {settings.min_confidence:g} sure of its "
        f"first {settings.fields} choices ({settings.min_text_confidence:g} of its first {settings.text_tokens} tokens "
        "of text), breaks the schema, is late, fails or gives nothing but nulls"
    )


def threshold_for(confidences: Iterable[float], full_share: float) -> float:
    """The threshold that sends a share of such requests, from 0 to 1, to the full tier; less where there are ties.

    Raises ValueError for a share out of range and for no confidences.
    """
    if not 0 <= full_share <= 1:
        raise ValueError("a share is from 0 to 1")
    ordered = sorted(confidences)
    if not ordered:
        raise ValueError("no confidences to go by")
    count = math.floor(full_share * len(ordered) + 1e-9)
    return ordered[count] if count < len(ordered) else math.nextafter(ordered[-1], math.inf)


def share_below(confidences: Sequence[float], threshold: float) -> float:
    """The share of requests that a threshold sends to the full tier."""
    return sum(confidence < threshold for confidence in confidences) / len(confidences)


def _find_breach(evidence: Evidence) -> Judgement | None:
    """What is wrong with an answer that has ended, if it is."""
    if evidence.verdict == Verdict.VERDICT_INVALID:
        return _escalate(CascadeReason.CASCADE_REASON_ESCALATED_INVALID)
    if evidence.verdict != Verdict.VERDICT_INCOMPLETE:
        return None
    if evidence.incomplete_reason == IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED:
        return _escalate(CascadeReason.CASCADE_REASON_ESCALATED_FAILED)
    if evidence.incomplete_reason not in _CALLERS_LIMITS:
        return _escalate(CascadeReason.CASCADE_REASON_ESCALATED_INCOMPLETE)
    return None


def _is_enough(evidence: Evidence, settings: CascadeSettings) -> bool:
    if len(evidence.choices) >= settings.fields:
        return True
    # Where a choice is still to come it says more than text.
    return not evidence.has_choices and (evidence.text is not None or evidence.values > 0)


def _compare(confidence: float, threshold: float) -> Judgement:
    if confidence < threshold:
        return _escalate(CascadeReason.CASCADE_REASON_ESCALATED_UNSURE, confidence)
    return Judgement(True, CascadeReason.CASCADE_REASON_KEPT_CONFIDENT, confidence)


def _escalate(reason: CascadeReason.ValueType, confidence: float | None = None) -> Judgement:
    return Judgement(False, reason, confidence)
