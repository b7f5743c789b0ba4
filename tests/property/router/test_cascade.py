"""Whatever a lite node says: one judgement, in time, and more confidence never costs it the answer."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import Confidence, FieldConfidence
from ssop_router.core.cascade import CascadeSettings, Evidence, judge, share_below, threshold_for

probabilities = st.floats(0, 1)
settings = st.builds(
    CascadeSettings,
    fields=st.integers(1, 4),
    text_tokens=st.integers(1, 32),
    min_confidence=probabilities,
    min_text_confidence=probabilities,
)
entries = st.builds(
    FieldConfidence,
    seq=st.integers(0, 9),
    tokens=st.integers(0, 20),
    sum_logprob=st.floats(width=32),
    min_logprob=st.floats(width=32),
    is_choice=st.booleans(),
    is_null=st.booleans(),
)
messages = st.lists(st.builds(Confidence, fields=st.lists(entries, max_size=4), has_choices=st.booleans()), max_size=6)
evidences = st.builds(
    Evidence,
    choices=st.lists(st.none() | probabilities, max_size=4).map(tuple),
    text=st.none() | probabilities,
    values=st.integers(0, 5),
    nulls=st.integers(0, 5),
    has_choices=st.booleans(),
    verdict=st.sampled_from(Verdict.values()),
    incomplete_reason=st.sampled_from(IncompleteReason.values()),
    is_over=st.booleans(),
)


@given(messages, settings)
def test_any_messages_are_judged_at_the_end_of_the_window(said: list[Confidence], rules: CascadeSettings) -> None:
    shown = Evidence()
    for message in said:
        shown = shown.take(message, rules)
        assert len(shown.choices) <= rules.fields
    found = judge(replace(shown, is_over=True), rules)
    assert found is not None
    assert found.reason
    assert found.confidence is None or 0 <= found.confidence <= 1


@given(evidences, settings, st.data())
def test_more_confidence_never_escalates(shown: Evidence, rules: CascadeSettings, data: st.DataObject) -> None:
    raised = replace(
        shown,
        choices=tuple(None if c is None else data.draw(st.floats(c, 1)) for c in shown.choices),
        text=None if shown.text is None else data.draw(st.floats(shown.text, 1)),
    )
    before, after = judge(shown, rules), judge(raised, rules)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.is_kept >= before.is_kept


@given(evidences, settings, probabilities)
def test_lower_threshold_never_escalates(shown: Evidence, rules: CascadeSettings, factor: float) -> None:
    lower = replace(
        rules,
        min_confidence=rules.min_confidence * factor,
        min_text_confidence=rules.min_text_confidence * factor,
    )
    before, after = judge(shown, rules), judge(shown, lower)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.is_kept >= before.is_kept


@given(st.lists(probabilities, min_size=1, max_size=50), probabilities)
def test_threshold_never_sends_more_than_its_share(confidences: list[float], share: float) -> None:
    assert share_below(confidences, threshold_for(confidences, share)) <= share + 1e-6
