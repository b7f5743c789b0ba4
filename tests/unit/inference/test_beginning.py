"""From the frames of a document that was cut to its text, and from there on."""

import json
from typing import Any

import pytest

from helpers.as_written import run_both_ways
from helpers.beginnings import TREE, TREE_DOCUMENT, cut
from helpers.inference import OPINION
from ssop.v1 import frame_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import compile_schema
from ssop_inference.core.beginning import Beginning, read_beginning
from ssop_inference.core.document import DocumentWriter, Ending
from ssop_inference.core.tokens import Token

way = run_both_ways("ssop_inference.core.document", "DocumentWriter", "Ending")

OPINION_TEXT = json.dumps(
    {
        "main_entity": "Aurora",
        "sentiment": "negative",
        "score": 0.25,
        "is_urgent": True,
        "tags": ["a", "b"],
        "summary": "It swelled.",
    }
)
DOCUMENTS: list[tuple[Any, str]] = [
    (OPINION, OPINION_TEXT),
    (TREE, json.dumps(TREE_DOCUMENT, ensure_ascii=False)),
    ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "[[1, 2], [], [3]]"),
    ({}, '{"a": {"b": [1, "x", {"c": null}]}, "d": 1e+400, "e": [[]]}'),
]


def beginning_of(schema: Any, text: str, tokens: tuple[str | int, ...]) -> Beginning:
    """The beginning that ends with the frame of a value."""
    schema_node = json.dumps(tokens)
    for request in cut(schema, text):
        beginning = read_beginning(request.chunk, request.next_seq)
        if json.dumps(_last_tokens(request.chunk)) == schema_node:
            return beginning
    raise AssertionError(f"{tokens} was not sent")


def _last_tokens(chunk: bytes) -> tuple[str | int, ...]:
    from ssop_codec import Decoder  # noqa: PLC0415 - for this one function

    return Decoder().feed(chunk)[-1].tokens


@pytest.mark.parametrize(("schema", "text"), DOCUMENTS)
def test_text_of_frames_is_the_beginning_of_the_document(schema: Any, text: str) -> None:
    for request in cut(schema, text):
        beginning = read_beginning(request.chunk, request.next_seq)
        assert text.startswith(beginning.text)


@pytest.mark.parametrize(("schema", "text"), DOCUMENTS)
def test_what_goes_on_from_frames_makes_the_same_rest(schema: Any, text: str) -> None:
    compiled = compile_schema(json.dumps(schema))
    whole = list(cut(schema, text))
    expected = frame_pb2.Chunk.FromString(whole[-1].chunk).frames
    for request in whole:
        beginning = read_beginning(request.chunk, request.next_seq)
        writer = DocumentWriter(
            compiled, stream_buffer_bytes=96, is_envelope=False, has_logprobs=False, beginning=beginning
        )
        chunks = writer.feed([Token(text[len(beginning.text) :].encode())])
        chunks += writer.finish(Ending(frame_pb2.FINISH_REASON_STOP))
        frames = frame_pb2.Chunk.FromString(b"".join(chunks)).frames
        assert list(frames)[:-1] == list(expected)[request.next_seq - 1 :]
        assert frames[-1].end.verdict == frame_pb2.VERDICT_OK
        assert frames[-1].seq == len(expected) + 1


def test_number_that_is_final_gets_no_more_digits() -> None:
    beginning = beginning_of(OPINION, OPINION_TEXT, ("score",))
    writer = DocumentWriter(
        compile_schema(json.dumps(OPINION)),
        stream_buffer_bytes=96,
        is_envelope=False,
        has_logprobs=False,
        beginning=beginning,
    )
    with pytest.raises(MeshError) as caught:
        writer.feed([Token(b'5, "is_urgent": true')])
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED


def test_number_without_a_grammar_is_closed_by_a_blank() -> None:
    beginning = beginning_of(OPINION, OPINION_TEXT, ("score",))
    writer = DocumentWriter(
        compile_schema(json.dumps(OPINION)),
        stream_buffer_bytes=96,
        is_envelope=True,
        has_logprobs=False,
        beginning=beginning,
    )
    writer.feed([Token(b"5")])
    assert writer.is_invalid


def test_document_that_lacks_its_end_only_is_whole() -> None:
    *_, last = cut(OPINION, OPINION_TEXT)
    assert read_beginning(last.chunk, last.next_seq).is_whole


def test_frames_of_another_schema_are_refused_by_name() -> None:
    beginning = beginning_of(OPINION, OPINION_TEXT, ("score",))
    with pytest.raises(MeshError) as caught:
        DocumentWriter(
            compile_schema(json.dumps(TREE)),
            stream_buffer_bytes=96,
            is_envelope=False,
            has_logprobs=False,
            beginning=beginning,
        )
    assert caught.value.metadata["feature"] == "continue_from"


def _forged(**changes: Any) -> bytes:
    request = next(cut(OPINION, OPINION_TEXT))
    chunk = frame_pb2.Chunk.FromString(request.chunk)
    chunk.frames.append(frame_pb2.Frame(seq=request.next_seq, kind=frame_pb2.FRAME_KIND_VALUE, **changes))
    return chunk.SerializeToString()


@pytest.mark.parametrize(
    ("chunk", "next_seq"),
    [
        (b"\xff\xff", 2),
        (b"", 1),
        (next(cut(OPINION, OPINION_TEXT)).chunk, 9),
        (_forged(node=1, string_value="twice"), 4),
        (_forged(node=8, string_value="beyond the table"), 4),
    ],
    ids=["no chunk", "no header", "a gap", "a field twice", "an unknown node"],
)
def test_what_is_no_beginning_is_refused(chunk: bytes, next_seq: int) -> None:
    with pytest.raises(MeshError) as caught:
        read_beginning(chunk, next_seq)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID
