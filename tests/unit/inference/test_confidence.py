"""Confidence frames: what is judged, how, and when it is said."""

import json
import math
from typing import Any

import pytest

from helpers.inference import Answer, NodeUnderTest, Script, ScriptedBackend, scripted_node, user_prompt
from ssop.v1 import frame_pb2, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import compile_schema, text_schema
from ssop_inference.backend import Token
from ssop_inference.core.confidence import find_choices
from ssop_inference.core.constraint import grammar_schema
from ssop_inference.core.masked import masked_logprob
from ssop_inference.mask import GrammarMask, TokenScorer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad", None]}, "text": {"type": "string"}},
    "required": ["mood", "text"],
    "additionalProperties": False,
}
GRAMMAR = "%llguidance {}\nstart: %json " + grammar_schema(SCHEMA)


def likely(**pieces: float) -> list[tuple[bytes, float]]:
    return sorted(((piece.encode(), math.log(p)) for piece, p in pieces.items()), key=lambda pair: -pair[1])


def test_what_the_grammar_forbids_does_not_count_against_a_token() -> None:
    candidates = likely(sad=0.5, bad=0.3, good=0.1)
    found = masked_logprob(b"bad", math.log(0.3), candidates, lambda piece: piece != b"sad")
    assert math.exp(found) == pytest.approx(0.75)


def test_other_spellings_of_the_same_beginning_are_no_contradiction() -> None:
    candidates = likely(bad=0.3, b=0.2, good=0.1)
    found = masked_logprob(b"bad", math.log(0.3), candidates, lambda _: True)
    assert math.exp(found) == pytest.approx(0.5 / 0.6)


def test_token_that_no_candidate_contradicts_is_certain() -> None:
    assert masked_logprob(b"x", -30.0, [(b"y", -1.0)], lambda _: False) == pytest.approx(0.0)


def test_probability_of_zero_has_a_logarithm() -> None:
    assert math.isfinite(masked_logprob(b"x", -2000.0, likely(y=0.9), lambda _: True))


def test_mask_follows_the_output() -> None:
    mask = GrammarMask(GRAMMAR)
    mask.advance(b'{"mood": "')
    assert [piece for piece in (b"good", b"go", b"fine", b"bad", b'bad", "t') if mask.allows(piece)] == [
        b"good",
        b"go",
        b"bad",
        b'bad", "t',
    ]


def test_output_that_leaves_the_grammar_loses_the_mask() -> None:
    mask = GrammarMask(GRAMMAR)
    mask.advance(b"Once upon a time")
    assert mask.is_lost
    mask.advance(b"there was")


def test_grammar_that_is_none_loses_the_mask() -> None:
    assert GrammarMask("this is no grammar").is_lost


def piece(text: str, logprob: float, **others: float) -> dict[str, Any]:
    top = [{"bytes": list(key.encode()), "logprob": math.log(p)} for key, p in others.items()]
    return {"text": text, "logprobs": {"content": [{"logprob": logprob, "top_logprobs": top}]}}


def test_scorer_masks_each_token_at_its_place() -> None:
    score = TokenScorer(GRAMMAR)
    assert score(b'{"mood": "', piece('{"mood": "', -5.0, Once=0.9)) == pytest.approx(0.0)
    found = score(b"bad", piece("bad", math.log(0.2), sad=0.6, bad=0.2, good=0.2))
    assert found == pytest.approx(math.log(0.5))


def test_scorer_without_a_grammar_gives_the_models_own() -> None:
    assert TokenScorer(None)(b"bad", piece("bad", -1.5, sad=0.6)) == -1.5


def test_scorer_says_nothing_where_the_engine_does_not() -> None:
    assert TokenScorer(GRAMMAR)(b"x", {"text": "x"}) is None


def test_scorer_whose_mask_is_lost_gives_the_models_own() -> None:
    score = TokenScorer("this is no grammar")
    assert score(b"bad", piece("bad", -1.5, sad=0.6)) == -1.5


@pytest.mark.parametrize(
    ("schema", "is_choice"),
    [
        ({"enum": ["a", "b"]}, True),
        ({"enum": ["a", None]}, True),
        ({"const": "a"}, False),
        ({"type": "boolean"}, True),
        ({"type": "integer"}, True),
        ({"type": ["number", "null"]}, True),
        ({"type": "null"}, False),
        ({"type": "string", "maxLength": 8}, True),
        ({"type": "string", "maxLength": 9}, False),
        ({"type": "string"}, False),
        ({"type": "object"}, False),
        ({}, False),
    ],
)
def test_value_is_a_choice(schema: Any, is_choice: bool) -> None:
    compiled = compile_schema(json.dumps({"type": "object", "properties": {"x": schema}}))
    assert find_choices(compiled) == (frozenset({1}) if is_choice else frozenset())


def test_plain_text_has_no_choices() -> None:
    assert find_choices(text_schema()) == frozenset()


def node_of(*pieces: Token, **options: Any) -> NodeUnderTest:
    return scripted_node(ScriptedBackend(Script([[piece] for piece in pieces]), **options))


def confidences(answer: Answer) -> list[mesh_pb2.FieldConfidence]:
    return [f for frame in answer.of_kind(frame_pb2.FRAME_KIND_CONFIDENCE) for f in frame.confidence.fields]


TOKENS = (Token(b'{"mood": ', -0.1), Token(b'"bad"', -0.5), Token(b', "text": "', -0.1), *[Token(b"w", -1.0)] * 6)


async def test_confidence_comes_before_its_value() -> None:
    running = node_of(*TOKENS, Token(b'"}', -0.1))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), confidence_tokens=16)
    kinds = [frame.kind for frame in answer.frames]
    assert kinds[1:4] == [
        frame_pb2.FRAME_KIND_HEADER,
        frame_pb2.FRAME_KIND_CONFIDENCE,
        frame_pb2.FRAME_KIND_VALUE,
    ] or kinds[1:3] == [frame_pb2.FRAME_KIND_CONFIDENCE, frame_pb2.FRAME_KIND_HEADER]
    first, second = confidences(answer)
    assert (first.seq, first.node, first.is_choice, first.tokens) == (2, 1, True, 1)
    assert first.min_logprob == pytest.approx(-0.5)
    assert (second.node, second.is_choice) == (2, False)


async def test_confidence_says_what_was_consumed() -> None:
    running = node_of(*TOKENS, Token(b'"}', -0.1))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), confidence_tokens=16)
    first = answer.of_kind(frame_pb2.FRAME_KIND_CONFIDENCE)[0].confidence
    assert (first.usage.input_tokens, first.usage.output_tokens) == (11, 2)
    assert first.has_choices


async def test_text_that_is_being_written_is_judged_once() -> None:
    running = node_of(*[Token(b"word ", -1.0)] * 9)
    answer = await running.client.generate(user_prompt("x"), confidence_tokens=4)
    begun, whole = confidences(answer)
    assert (begun.seq, begun.tokens, begun.sum_logprob) == (0, 4, -4.0)
    assert (whole.seq, whole.tokens, whole.is_choice) == (11, 4, False)


async def test_null_is_told() -> None:
    running = node_of(Token(b'{"mood": null, "text": "x"}', -0.1))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), confidence_tokens=4)
    assert [entry.is_null for entry in confidences(answer)] == [True, False]


async def test_backend_without_log_probabilities_still_names_its_values() -> None:
    running = node_of(Token(b'{"mood": "bad", "text": "x"}'), has_logprobs=False)
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA), confidence_tokens=4)
    assert [(entry.node, entry.tokens) for entry in confidences(answer)] == [(1, 0), (2, 0)]


async def test_nothing_is_said_unless_asked() -> None:
    running = node_of(*TOKENS, Token(b'"}', -0.1))
    answer = await running.client.generate(user_prompt("x", schema=SCHEMA))
    assert confidences(answer) == []
    assert not answer.of_kind(frame_pb2.FRAME_KIND_LOGPROBS)


async def test_too_many_tokens_are_refused() -> None:
    running = node_of()
    with pytest.raises(MeshError) as caught:
        await running.client.generate(user_prompt("x"), confidence_tokens=257)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
