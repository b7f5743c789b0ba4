import json
from typing import Any

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.core.message_stream import MessageStreamReader
from ssop_inference.core.tokens import Stop, Token
from ssop_inference.core.upstream_errors import WireError

START: dict[str, Any] = {
    "type": "message_start",
    "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 3}},
}


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **fields}}


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


def stopped(reason: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}}


STOP_BLOCK = {"type": "content_block_stop", "index": 0}
STOP = {"type": "message_stop"}


def read(*events: dict[str, Any], is_tool: bool = False) -> tuple[MessageStreamReader, list[Token]]:
    reader = MessageStreamReader(is_tool=is_tool)
    return reader, [token for data in events for token in reader.feed(data["type"], json.dumps(data))]


def text_of(tokens: list[Token]) -> bytes:
    return b"".join(token.text for token in tokens)


def test_text_blocks_are_the_answer() -> None:
    _, tokens = read(START, block("text", text=""), delta("text_delta", text="Hel"), delta("text_delta", text="lo"))
    assert text_of(tokens) == b"Hello"


def test_thinking_is_a_sign_of_life_and_no_text() -> None:
    reader, tokens = read(START, block("thinking"), delta("thinking_delta", thinking="hm"))
    assert (reader.signs, tokens) == (1, [])


def test_input_of_the_tool_is_the_document() -> None:
    pieces = [delta("input_json_delta", partial_json=piece) for piece in ("", '{"a"', ": 1}")]
    _, tokens = read(START, block("text", text=""), delta("text_delta", text="Sure:"), STOP_BLOCK,
                     block("tool_use", input={}), *pieces, STOP_BLOCK, is_tool=True)  # fmt: skip
    assert text_of(tokens) == b'{"a": 1}'


def test_input_without_properties_is_an_empty_object() -> None:
    _, tokens = read(START, block("tool_use", input={}), STOP_BLOCK, is_tool=True)
    assert text_of(tokens) == b"{}"


def test_usage_counts_the_cached_prompt_too() -> None:
    reader, _ = read(START, stopped("end_turn"), STOP)
    counts = reader.counts
    assert (counts.input_tokens, counts.output_tokens, counts.cached_input_tokens) == (8, 4, 3)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("tool_use", Stop.END),
        ("max_tokens", Stop.OUTPUT_LIMIT),
        ("model_context_window_exceeded", Stop.CONTEXT_FULL),
        ("refusal", Stop.CONTENT_FILTER),
    ],
)
def test_stop_reason_says_why_the_model_stopped(reason: str, stop: Stop) -> None:
    reader, _ = read(START, stopped(reason), STOP)
    assert (reader.stop, reader.is_ended) == (stop, True)


def test_event_that_is_not_known_is_passed_over() -> None:
    reader, _ = read(START, {"type": "news"}, {"type": "ping"}, stopped("end_turn"), STOP)
    assert reader.is_ended


@pytest.mark.parametrize(
    "events",
    [
        [delta("text_delta", text="a")],
        [START, START],
        [START, {"type": "content_block_delta", "delta": 5}],
        [START, delta("text_delta", text=5)],
        [START, {"type": "content_block_start"}],
        [START, stopped("pause_turn")],
        [START, stopped(5)],
        [START, STOP],
        [START, stopped("end_turn"), delta("text_delta", text="a")],
    ],
)
def test_stream_out_of_order_is_a_fault(events: list[dict[str, Any]]) -> None:
    with pytest.raises(WireError):
        read(*events)


def test_overload_in_the_stream_is_overloaded() -> None:
    with pytest.raises(MeshError) as caught:
        read(START, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED
