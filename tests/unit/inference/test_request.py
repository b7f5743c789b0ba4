from typing import Any

import pytest

from helpers.as_written import run_both_ways
from helpers.inference import asked, user_prompt
from ssop.v1 import content_pb2
from ssop_chassis.errors import MeshError
from ssop_inference.core.budget import fit_budget
from ssop_inference.core.logprobs import FieldScorer, FieldSpan, TokenSpan
from ssop_inference.core.throughput import ThroughputMeter

way = run_both_ways("ssop_inference.core.throughput", "ThroughputMeter")


def test_absent_top_p_is_one() -> None:
    assert asked(user_prompt("x", temperature=0.5)).sampling.top_p == 1.0


@pytest.mark.parametrize(
    ("field", "sampling"),
    [
        ("temperature", {"temperature": 2.1}),
        ("temperature", {"temperature": float("nan")}),
        ("top_p", {"top_p": 0.0}),
        ("top_p", {"top_p": 1.5}),
        ("presence_penalty", {"presence_penalty": -3}),
        ("frequency_penalty", {"frequency_penalty": 3}),
        ("stop", {"stop": ["a"] * 5}),
        ("stop", {"stop": ["a" * 65]}),
        ("stop", {"stop": [""]}),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(field: str, sampling: dict[str, Any]) -> None:
    with pytest.raises(MeshError) as caught:
        asked(user_prompt("x", **sampling))
    assert [name for name, _ in caught.value.fields] == [f"prompt.sampling.{field}"]


def test_stop_with_a_schema_is_refused() -> None:
    with pytest.raises(MeshError):
        asked(user_prompt("x", schema={"type": "null"}, stop=["a"]))


@pytest.mark.parametrize("size", [1, 63, 16_385])
def test_buffer_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(MeshError):
        asked(content_pb2.Prompt(stream_buffer_size=size))


def test_linger_out_of_range_is_refused() -> None:
    with pytest.raises(MeshError) as caught:
        asked(content_pb2.Prompt(linger_ms=1_001))
    assert caught.value.fields[0][0] == "prompt.linger_ms"


def test_request_without_an_id_is_refused() -> None:
    with pytest.raises(MeshError):
        asked(user_prompt("x"), request_id="")


def test_default_output_limit_shrinks_to_the_context() -> None:
    budget = fit_budget(90, context_tokens=100, asked_tokens=0, default_tokens=50)
    assert (budget.max_output_tokens, budget.is_context_bound) == (10, True)


def test_asked_output_limit_is_kept() -> None:
    budget = fit_budget(10, context_tokens=100, asked_tokens=20, default_tokens=50)
    assert (budget.max_output_tokens, budget.is_context_bound) == (20, False)


@pytest.mark.parametrize(("input_tokens", "asked_tokens"), [(100, 0), (200, 0), (90, 11)])
def test_what_does_not_fit_is_refused_with_both_counts(input_tokens: int, asked_tokens: int) -> None:
    with pytest.raises(MeshError) as caught:
        fit_budget(input_tokens, context_tokens=100, asked_tokens=asked_tokens, default_tokens=5)
    assert caught.value.metadata == {"limit_tokens": "100", "input_tokens": str(input_tokens)}


def test_field_score_sums_its_tokens() -> None:
    scorer = FieldScorer()
    for start, logprob in enumerate([-1.0, -2.0, -3.0, -4.0]):
        scorer.add_token(TokenSpan(start, start + 1, logprob))
    (score,) = scorer.score([FieldSpan(7, 1, 3)]).fields
    assert (score.seq, score.sum_logprob, score.min_logprob, score.tokens) == (7, -5.0, -3.0, 2)


def test_token_on_a_border_counts_for_both_fields() -> None:
    scorer = FieldScorer()
    scorer.add_token(TokenSpan(0, 4, -1.0))
    assert [f.tokens for f in scorer.score([FieldSpan(1, 0, 2), FieldSpan(2, 3, 5)]).fields] == [1, 1]


def test_tokens_of_settled_fields_are_forgotten() -> None:
    scorer = FieldScorer()
    for start in range(1000):
        scorer.add_token(TokenSpan(start, start + 1, -1.0))
        scorer.score([FieldSpan(start, start, start + 1)])
    assert len(scorer._tokens) <= 1


def test_throughput_counts_only_the_time_in_which_something_ran() -> None:
    meter = ThroughputMeter()
    meter.start(0.0)
    meter.add(10, 0.5)
    meter.stop(1.0)
    meter.start(100.0)
    meter.add(20, 101.0)
    assert meter.tokens_per_s == pytest.approx(20.0, rel=0.2)
