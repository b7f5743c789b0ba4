"""A node that goes on with a document that another one began."""

import json
from typing import Any

import pytest

from helpers.beginnings import cut
from helpers.inference import OPINION, POST, Answer, Script, ScriptedBackend, scripted_node, user_prompt
from ssop.v1 import frame_pb2, inference_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import Encoder, text_schema
from ssop_inference.backend import Token
from ssop_inference.core.constraint import Constraint, Mode

TEXT = json.dumps(
    {
        "main_entity": "Aurora",
        "sentiment": "negative",
        "score": 0.25,
        "is_urgent": True,
        "tags": ["a", "b"],
        "summary": "It swelled.",
    }
)
BEGINNINGS = list(cut(OPINION, TEXT))
BEGUN = '{"main_entity": "Aurora"'


FULL = Constraint(Mode.FULL, OPINION, "grammar")


def backend_of(*scripts: Script, constraint: Constraint = FULL, **options: Any) -> ScriptedBackend:
    return ScriptedBackend(*scripts, constraint=constraint, **options)


async def go_on(
    backend: ScriptedBackend, beginning: inference_pb2.ContinueFrom = BEGINNINGS[0], **prompt: Any
) -> Answer:
    """What the node answers; the frames are decoded behind those that are final."""
    answer = Answer()
    answer.decoder.feed(beginning.chunk)
    request = user_prompt(POST, schema=OPINION, **prompt)
    async with scripted_node(backend).client.open(request, continue_from=beginning) as stream:
        while (message := await stream.read()) is not None:
            answer.take(message)
    return answer


async def refusal_of(backend: ScriptedBackend, beginning: inference_pb2.ContinueFrom = BEGINNINGS[0]) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await go_on(backend, beginning)
    return caught.value


async def test_model_gets_the_text_of_what_is_final_and_frames_are_numbered_on() -> None:
    backend = backend_of(Script([TEXT[len(BEGUN) :].encode()]))
    answer = await go_on(backend)
    assert backend.requests[0].beginning == BEGUN
    assert answer.decoder.result == json.loads(TEXT)
    assert answer.end.verdict == frame_pb2.VERDICT_OK
    seqs = [frame.seq for frame in answer.frames if frame.seq]
    assert seqs == list(range(BEGINNINGS[0].next_seq, answer.end.frames + 1))


async def test_grammar_is_that_of_the_rest() -> None:
    backend = backend_of(Script([TEXT[len(BEGUN) :].encode()]), constraint=Constraint(Mode.FULL, OPINION, "whole"))
    await go_on(backend)
    grammar = backend.requests[0].constraint.grammar
    assert grammar is not None
    assert "main_entity" not in grammar
    assert "sentiment" in grammar


async def test_document_that_lacks_its_end_runs_no_model() -> None:
    backend = backend_of()
    answer = await go_on(backend, BEGINNINGS[-1])
    assert answer.end.verdict == frame_pb2.VERDICT_OK
    assert not backend.requests
    assert answer.end.usage.output_tokens == 0


async def test_model_that_begins_anew_breaks_the_document_and_repeats_no_frame() -> None:
    answer = await go_on(backend_of(Script([TEXT.encode()])))
    assert answer.end.verdict == frame_pb2.VERDICT_INVALID
    assert [frame.kind for frame in answer.frames if frame.seq] == [frame_pb2.FRAME_KIND_END]


async def test_engine_that_fails_says_so_in_the_end() -> None:
    fault = MeshError(ErrorReason.ERROR_REASON_BACKEND_FAILED, "scripted")
    answer = await go_on(backend_of(Script([b', "sentiment": "neg', fault])))
    assert answer.end.incomplete_reason == frame_pb2.INCOMPLETE_REASON_BACKEND_FAILED


async def test_backend_that_takes_no_beginning_refuses_by_name() -> None:
    error = await refusal_of(backend_of(has_prefill=False))
    assert error.reason == ErrorReason.ERROR_REASON_UNSUPPORTED
    assert error.metadata["feature"] == "continue_from"


async def test_backend_that_is_held_without_a_grammar_refuses_by_name() -> None:
    error = await refusal_of(backend_of(constraint=Constraint(Mode.FULL, OPINION)))
    assert error.metadata["feature"] == "continue_from"


async def test_backend_that_is_held_to_nothing_gets_no_grammar() -> None:
    backend = backend_of(Script([TEXT[len(BEGUN) :].encode()]), constraint=Constraint(Mode.ENVELOPE))
    answer = await go_on(backend)
    assert backend.requests[0].constraint.grammar is None
    assert answer.decoder.result == json.loads(TEXT)


async def test_document_that_lacks_its_end_needs_no_prefill() -> None:
    assert (await go_on(backend_of(has_prefill=False), BEGINNINGS[-1])).end.verdict == frame_pb2.VERDICT_OK


async def test_schema_that_has_no_rest_is_refused_by_name() -> None:
    union = {"anyOf": [OPINION, {"type": "object"}]}
    error = await refusal_of(backend_of(constraint=Constraint(Mode.FULL, union, "whole")))
    assert error.metadata["detail"] == "a union of several schemas (anyOf) is open"


async def test_logprobs_speak_of_new_fields_only() -> None:
    backend = backend_of(Script([[Token(TEXT[len(BEGUN) :].encode(), -0.5)]]))
    request = user_prompt(POST, schema=OPINION)
    request.logprobs = True
    answer = Answer()
    answer.decoder.feed(BEGINNINGS[0].chunk)
    async with scripted_node(backend).client.open(request, continue_from=BEGINNINGS[0]) as stream:
        while (message := await stream.read()) is not None:
            answer.take(message)
    (scores,) = answer.of_kind(frame_pb2.FRAME_KIND_LOGPROBS)
    assert scores.logprobs.fields[0].seq == BEGINNINGS[0].next_seq


async def test_text_goes_on_where_it_was_cut() -> None:
    *_, begun = cut(None, "Once upon")
    backend = backend_of(Script([b" a time"]))
    answer = Answer()
    answer.decoder.feed(begun.chunk)
    async with scripted_node(backend).client.open(user_prompt(POST), continue_from=begun) as stream:
        while (message := await stream.read()) is not None:
            answer.take(message)
    assert backend.requests[0].beginning == "Once upon"
    assert answer.decoder.text == "Once upon a time"
    assert answer.end.verdict == frame_pb2.VERDICT_OK


async def test_text_that_lacks_its_end_runs_no_model() -> None:
    encoder = Encoder(text_schema())
    encoder.feed(b"Once upon")
    sent = encoder.drain(flush=True)
    encoder.feed(b" a time")
    encoder.finish(finish_reason=1)
    frames = frame_pb2.Chunk.FromString(b"".join([*sent, *encoder.drain(flush=True)])).frames[:-1]
    chunk = frame_pb2.Chunk(frames=frames).SerializeToString(deterministic=True)
    begun = inference_pb2.ContinueFrom(chunk=chunk, next_seq=len(frames) + 1)
    backend = backend_of()
    answer = Answer()
    answer.decoder.feed(begun.chunk)
    async with scripted_node(backend).client.open(user_prompt(POST), continue_from=begun) as stream:
        while (message := await stream.read()) is not None:
            answer.take(message)
    assert answer.decoder.text == "Once upon a time"
    assert answer.end.verdict == frame_pb2.VERDICT_OK
    assert not backend.requests
