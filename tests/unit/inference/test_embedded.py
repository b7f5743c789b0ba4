import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import GenerateRequest, Stop, Token
from ssop_inference.core.budget import Budget
from ssop_inference.core.constraint import Constraint, Mode
from ssop_inference.core.prompt import ChatMessage
from ssop_inference.core.request import SamplingOptions
from ssop_inference.core.throughput import ThroughputMeter
from ssop_inference.embedded import EmbeddedGeneration, _body
from ssop_inference.slots import Slot
from ssop_inference.token_stream import TokenStream

BUDGET = Budget(input_tokens=7, max_output_tokens=5, is_context_bound=False)
TIMINGS = {"predicted_n": 2, "cache_n": 3}


def piece(text: str, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish, **fields}], "timings": TIMINGS}


class FakeEngine:
    """Gives its chunks to the callback, as the engine does: one that raises ends the call without a word."""

    def __init__(self, *chunks: Any, error: Exception | None = None) -> None:
        self._chunks = chunks
        self._error = error
        self.taken = 0

    def complete(self, body: Mapping[str, Any], on_chunk: Callable[[Any], bool]) -> None:
        if self._error is not None:
            raise self._error
        for chunk in self._chunks:
            self.taken += 1
            if on_chunk(chunk):
                return


async def generate(engine: FakeEngine, budget: Budget = BUDGET) -> tuple[EmbeddedGeneration, Sequence[Token]]:
    loop = asyncio.get_running_loop()
    generation = EmbeddedGeneration(TokenStream(loop), budget, Slot(lambda _: None, 0.5, 0.0), ThroughputMeter())
    await asyncio.to_thread(generation.run, cast(Any, engine), {})
    tokens: list[Token] = []
    while batch := await generation.read():
        tokens += batch
    return generation, tokens


async def failure_of(engine: FakeEngine) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await generate(engine)
    return caught.value


async def test_pieces_become_tokens_and_usage() -> None:
    generation, tokens = await generate(FakeEngine(piece("a"), piece("é"), piece("", "stop")))
    assert [token.text for token in tokens] == [b"a", "é".encode()]
    outcome = generation.outcome
    assert (outcome.stop, outcome.input_tokens, outcome.output_tokens, outcome.cached_input_tokens) == (
        Stop.END,
        7,
        2,
        3,
    )


@pytest.mark.parametrize(("is_context_bound", "stop"), [(False, Stop.OUTPUT_LIMIT), (True, Stop.CONTEXT_FULL)])
async def test_length_is_told_by_what_cut_it(is_context_bound: bool, stop: Stop) -> None:
    budget = Budget(7, 5, is_context_bound)
    generation, _ = await generate(FakeEngine(piece("a"), piece("", "length")), budget)
    assert generation.outcome.stop is stop


@pytest.mark.parametrize(
    "chunk", [{"error": {"type": "server_error", "message": "secret"}}, {"choices": []}, {"surprise": 1}]
)
async def test_fault_inside_the_callback_is_raised_to_the_reader(chunk: Any) -> None:
    error = await failure_of(FakeEngine(chunk, piece("never")))
    assert error.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    assert "secret" not in error.message


async def test_request_that_the_engine_refuses_is_a_failure() -> None:
    error = await failure_of(FakeEngine(error=ValueError("bad grammar")))
    assert error.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


async def test_engine_that_ends_without_a_reason_is_a_failure() -> None:
    error = await failure_of(FakeEngine(piece("a")))
    assert error.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


async def test_cancel_is_seen_at_the_next_sign_of_life() -> None:
    engine = FakeEngine(piece(""), piece("a"), piece("b"))
    loop = asyncio.get_running_loop()
    generation = EmbeddedGeneration(TokenStream(loop), BUDGET, Slot(lambda _: None, 0.0, 0.0), ThroughputMeter())
    generation.cancel()
    await asyncio.to_thread(generation.run, cast(Any, engine), {})
    assert engine.taken == 1
    assert await generation.read() == []
    assert generation.outcome.stop is Stop.CANCELLED


@pytest.mark.parametrize(
    ("entry", "expected"),
    [({"prob": 0.5}, math.log(0.5)), ({"prob": 0.0}, math.log(1e-30)), ({"logprob": -2.5}, -2.5)],
)
async def test_log_probability_is_natural_and_finite(entry: dict[str, float], expected: float) -> None:
    chunk = piece("a", logprobs={"content": [entry]})
    _, tokens = await generate(FakeEngine(chunk, piece("", "stop")))
    assert tokens[0].logprob == pytest.approx(expected)


def body_of(**fields: Any) -> dict[str, Any]:
    request = GenerateRequest((ChatMessage("user", "x"),), 0.0, **fields)
    return _body(request, [1, 2], BUDGET)


def test_samplers_that_the_api_does_not_have_are_off() -> None:
    body = body_of(sampling=SamplingOptions(temperature=0.7))
    assert (body["top_k"], body["top_p"], body["min_p"]) == (0, 1.0, 0.0)


def test_seed_never_becomes_the_engines_word_for_random() -> None:
    assert body_of(sampling=SamplingOptions(seed=0xFFFF_FFFF))["seed"] == 0
    assert body_of()["seed"] == 0xFFFF_FFFF


def test_grammar_is_sent_only_where_there_is_one() -> None:
    assert "grammar" not in body_of()
    assert body_of(constraint=Constraint(Mode.FULL, {}, "start: x"))["grammar"] == "start: x"


def test_probabilities_after_the_mask_need_a_temperature() -> None:
    assert body_of(logprobs=True)["post_sampling_probs"] is False
    assert body_of(logprobs=True, sampling=SamplingOptions(temperature=1))["post_sampling_probs"] is True
