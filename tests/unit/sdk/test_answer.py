"""What chunks become, without any transport."""

from typing import Any

import grpc
import pytest

from helpers.answers import (
    PERSON,
    accounting_chunk,
    continued_delivery,
    decision_chunk,
    delivery,
    document_chunks,
    status_chunk,
)
from ssop_sdk.answer import Answer
from ssop_sdk.errors import (
    DegradedAnswer,
    FrameLoss,
    GenerationInterrupted,
    OutputIncomplete,
    OutputInvalid,
    ProtocolError,
    Unavailable,
)


def feed(answer: Answer, chunks: list[bytes]) -> list[Any]:
    return [frame for chunk in chunks for frame in answer.feed(chunk)]


def test_deltas_add_up_to_the_result() -> None:
    answer, result = Answer("r"), {}
    for frame in feed(answer, delivery(document_chunks(PERSON))):
        result.update(frame.delta)
    answer.finish({})
    assert result == answer.load_result() == PERSON


def test_inner_fields_and_parts_have_no_delta() -> None:
    frames = feed(Answer("r"), document_chunks({"name": "x" * 300, "age": 1, "tags": ["a"]}, buffer_bytes=64))
    inner = [f for f in frames if f.is_part or f.path == "/tags/0"]
    assert len(inner) > 1
    assert all(f.delta == {} for f in inner)


def test_value_in_parts_arrives_whole_in_its_delta() -> None:
    long = "ü" * 500
    answer = Answer("r")
    feed(answer, document_chunks({"name": long, "age": 1}, buffer_bytes=64))
    assert answer.fields["name"] == long


def test_mesh_frames_land_in_attributes_and_not_in_the_iteration() -> None:
    answer = Answer("r")
    frames = feed(answer, delivery(document_chunks(PERSON)))
    assert all(frame.seq > 0 for frame in frames)
    assert answer.decision is not None
    assert answer.decision.model == "small"
    assert answer.accounting is not None
    assert answer.accounting.usage.output_tokens == 7


def test_plain_text_grows() -> None:
    answer = Answer("r")
    feed(answer, document_chunks("héllo 世界", schema=None))
    answer.finish({})
    assert answer.text == answer.load_result() == "héllo 世界"


def test_violation_is_raised_at_the_end_with_what_was_final() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(text=b'{"name":"Ada","age":200}'))
    with pytest.raises(OutputInvalid) as caught:
        answer.finish({})
    assert (caught.value.pointer, caught.value.rule) == ("/age", "maximum")
    assert caught.value.partial == {"name": "Ada"}


def test_cut_answer_is_incomplete() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(text=b'{"name":"Ada","age":3'))
    with pytest.raises(OutputIncomplete) as caught:
        answer.finish({})
    assert caught.value.incomplete_reason == "MAX_OUTPUT_TOKENS"
    assert caught.value.partial == {"name": "Ada"}


def test_violation_that_the_status_tells_has_what_was_final_too() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(text=b'{"name":"Ada","age":200}'))
    error = answer.fail(OutputInvalid("m", metadata={"pointer": "/age"}, from_mesh=True))
    assert isinstance(error, OutputInvalid)
    assert error.partial == {"name": "Ada"}


def test_generated_content_is_in_no_message() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(text=b'{"name":"s3cret","age":200}'))
    with pytest.raises(OutputInvalid) as caught:
        answer.finish({})
    assert "s3cret" not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_missing_frame_is_loss(lost: int) -> None:
    chunks = document_chunks(PERSON)
    del chunks[lost]
    with pytest.raises(FrameLoss):
        feed(Answer("r"), chunks)


def test_missing_end_is_loss() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(PERSON)[:-1])
    with pytest.raises(FrameLoss):
        answer.finish({})


def test_answer_without_any_frame_is_loss() -> None:
    with pytest.raises(FrameLoss):
        Answer("r").finish({})


def test_more_frames_sent_than_received_is_loss() -> None:
    answer = Answer("r")
    feed(answer, [*document_chunks(PERSON), accounting_chunk(frames_sent=99)])
    with pytest.raises(FrameLoss):
        answer.finish({})


def test_garbage_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Answer("r").feed(b"\xff\xff\xff")


def test_degraded_answer_is_raised_before_any_field() -> None:
    answer = Answer("r")
    joined = b"".join([decision_chunk(), status_chunk(2), *document_chunks(PERSON)])
    with pytest.raises(DegradedAnswer) as caught:
        answer.feed(joined)
    assert (caught.value.level, caught.value.degraded_reason) == (2, "NODES_FAILED")
    assert answer.fields == {}


def test_degraded_answer_is_taken_where_allowed() -> None:
    answer = Answer("r", allow_degraded=True)
    feed(answer, delivery(document_chunks(PERSON), degraded_level=3))
    answer.finish({})
    assert (answer.degraded_level, answer.load_result()) == (3, PERSON)


def test_answer_that_another_node_went_on_with_is_an_answer() -> None:
    answer = Answer("r")
    feed(answer, continued_delivery())
    answer.finish({})
    assert answer.load_result() == PERSON
    assert answer.status is not None
    assert [entry.node for entry in answer.status.continuations] == ["n-2"]


def test_answer_that_is_degraded_half_way_is_raised_after_its_fields() -> None:
    answer = Answer("r")
    with pytest.raises(DegradedAnswer) as caught:
        feed(answer, continued_delivery(degraded_level=2))
    assert caught.value.level == 2
    assert answer.fields == {"name": "Ada"}


def test_answer_that_is_degraded_half_way_is_taken_where_allowed() -> None:
    answer = Answer("r", allow_degraded=True)
    feed(answer, continued_delivery(degraded_level=2))
    answer.finish({"x-ssop-status": "DEGRADED", "x-ssop-degraded-level": "2"})
    assert (answer.degraded_level, answer.load_result()) == (2, PERSON)


def test_deeper_level_than_allowed_is_raised() -> None:
    with pytest.raises(DegradedAnswer):
        Answer("r", allow_degraded=True, max_degraded_level=1).feed(status_chunk(2))


def test_degradation_that_only_the_trailers_tell_is_raised() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(PERSON))
    with pytest.raises(DegradedAnswer) as caught:
        answer.finish({"x-ssop-status": "DEGRADED", "x-ssop-degraded-level": "1"})
    assert caught.value.level == 1


def test_lost_connection_after_a_field_is_an_interruption() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(PERSON)[:2])
    error = answer.fail(Unavailable("gone"))
    assert isinstance(error, GenerationInterrupted)
    assert error.last_seq == answer.last_seq == 2


def test_lost_connection_before_a_field_is_unavailable() -> None:
    answer = Answer("r")
    answer.feed(decision_chunk())
    assert isinstance(answer.fail(Unavailable("gone")), Unavailable)


def test_error_of_the_mesh_stands_after_a_field() -> None:
    answer = Answer("r")
    feed(answer, document_chunks(PERSON)[:2])
    error = Unavailable("m", code=grpc.StatusCode.UNAVAILABLE, from_mesh=True)
    assert answer.fail(error) is error


def test_known_frames_are_not_shown_again() -> None:
    answer = Answer("r", shown_seq=3)
    frames = feed(answer, document_chunks(PERSON))
    answer.finish({})
    assert min(f.seq for f in frames) == 4
    assert answer.load_result() == PERSON


def test_tool_calls_are_apart_from_the_deltas() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    call = document_chunks({"city": "Oslo"}, schema=schema, document=1, tool_name="weather", tool_call_id="c1")
    answer = Answer("r")
    frames = feed(answer, call)
    answer.finish({})
    [result] = answer.tool_calls
    assert (result.id, result.name, result.arguments) == ("c1", "weather", {"city": "Oslo"})
    assert all(f.delta == {} for f in frames)


def test_an_answer_of_calls_alone_is_complete_with_the_last_of_them() -> None:
    answer = Answer("r", load=lambda _: pytest.fail("there is nothing to load"))
    first = document_chunks({}, schema={"type": "object"}, document=1, tool_name="now", tool_call_id="c1")
    second = document_chunks({}, schema={"type": "object"}, document=2, tool_name="now", tool_call_id="c2")
    feed(answer, [*first, *second[:-1]])
    assert answer.finish_reason == ""
    feed(answer, second[-1:])
    answer.finish({})
    receipt = answer.receipt()
    assert answer.finish_reason == "STOP"
    assert answer.usage is not None
    assert (answer.usage.output_tokens, answer.document, answer.load_result()) == (7, None, None)
    assert receipt is not None
    assert receipt.is_complete


def test_receipt_counts_what_arrived() -> None:
    answer = Answer("r")
    chunks = document_chunks(PERSON)
    feed(answer, chunks[:3])
    receipt = answer.receipt()
    assert receipt is not None
    assert (receipt.frames_received, receipt.frames_verified, receipt.is_complete) == (3, 3, False)


def test_nothing_received_needs_no_receipt() -> None:
    assert Answer("r").receipt() is None
