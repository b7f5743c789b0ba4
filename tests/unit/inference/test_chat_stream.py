import json
from typing import Any

import pytest

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.core.chat_stream import ChatStreamReader
from ssop_inference.core.tokens import Stop, Token
from ssop_inference.core.upstream_errors import WireError


def chunk(content: Any = None, *, finish: Any = None, logprobs: Any = None, **fields: Any) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish, "logprobs": logprobs}
    return json.dumps({"choices": [choice], **fields})


def entry(text: bytes, logprob: float, **fields: Any) -> dict[str, Any]:
    return {"token": text.decode(errors="replace"), "bytes": list(text), "logprob": logprob, **fields}


def read(*events: str) -> tuple[ChatStreamReader, list[Token]]:
    reader = ChatStreamReader()
    return reader, [token for data in events for token in reader.feed("message", data)]


def test_text_comes_as_it_is_sent() -> None:
    _, tokens = read(chunk("Hel"), chunk("lo"))
    assert [token.text for token in tokens] == [b"Hel", b"lo"]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", Stop.END), ("length", Stop.OUTPUT_LIMIT), ("content_filter", Stop.CONTENT_FILTER)],
)
def test_finish_reason_says_why_the_model_stopped(reason: str, stop: Stop) -> None:
    reader, _ = read(chunk("a"), chunk(finish=reason), "[DONE]")
    assert (reader.stop, reader.is_ended) == (stop, True)


@pytest.mark.parametrize("reason", ["abort", "insufficient_system_resource", "tool_calls", "error", "", 5, {}])
def test_finish_reason_that_is_no_end_is_a_fault(reason: Any) -> None:
    with pytest.raises(WireError):
        read(chunk("a"), chunk(finish=reason))


def test_refusal_is_a_content_filter() -> None:
    reader, tokens = read(json.dumps({"choices": [{"delta": {"refusal": "I can't"}, "finish_reason": None}]}))
    assert (reader.stop, tokens) == (Stop.CONTENT_FILTER, [])


def test_thoughts_are_signs_of_life_and_no_text() -> None:
    reader, tokens = read(json.dumps({"choices": [{"delta": {"reasoning_content": "hm"}}]}))
    assert (reader.signs, reader.pieces, tokens) == (1, 0, [])


def test_character_that_two_chunks_share_is_joined() -> None:
    _, tokens = read(
        '{"choices": [{"delta": {"content": "a\\ud83d"}}]}', '{"choices": [{"delta": {"content": "\\ude00"}}]}'
    )
    assert b"".join(token.text for token in tokens) == "a😀".encode()


def test_half_a_character_at_the_end_is_a_fault() -> None:
    with pytest.raises(WireError):
        read('{"choices": [{"delta": {"content": "a\\ud83d"}}]}', chunk(finish="stop"))


def test_usage_is_what_the_server_says() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}}
    reader, _ = read(chunk("a"), chunk(finish="stop"), json.dumps({"choices": [], "usage": usage}), "[DONE]")
    counts = reader.counts
    assert (counts.input_tokens, counts.output_tokens, counts.cached_input_tokens) == (9, 4, 7)


@pytest.mark.parametrize(
    "usage", [None, [], "many", {"prompt_tokens": -1}, {"prompt_tokens": "9"}, {"prompt_tokens": 1e9}]
)
def test_malformed_usage_counts_as_not_said(usage: Any) -> None:
    reader, _ = read(chunk("a", usage=usage))
    assert reader.counts.input_tokens is None


def test_timings_of_llama_server_count_while_it_generates() -> None:
    reader, _ = read(chunk("a", timings={"predicted_n": 3, "prompt_n": 5, "cache_n": 20}))
    assert (reader.counts.input_tokens, reader.counts.output_tokens) == (25, 3)


def test_logprobs_split_a_text_into_its_tokens() -> None:
    _, tokens = read(chunk("ab", logprobs={"content": [entry(b"a", -0.1), entry(b"b", -0.2)]}))
    assert tokens == [Token(b"a", -0.1), Token(b"b", -0.2)]


def test_tokens_that_share_a_character_are_one() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    _, tokens = read(chunk("é", logprobs={"content": [entry(first, -0.5), entry(second, -0.25)]}))
    assert tokens == [Token("é".encode(), -0.75)]


def test_logprobs_of_another_text_stay_with_the_whole() -> None:
    _, tokens = read(chunk("ab", logprobs={"content": [entry(b"x", -0.5)]}))
    assert tokens == [Token(b"ab", -0.5)]


@pytest.mark.parametrize(
    "logprobs", [{"content": [5]}, {"content": [{}]}, {"content": [{"bytes": [999], "logprob": 0}]}]
)
def test_malformed_logprobs_are_a_fault(logprobs: Any) -> None:
    with pytest.raises(WireError):
        read(chunk("ab", logprobs=logprobs))


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", "null", "5", '{"choices": 5}', '{"choices": [5]}', '{"choices": [{"delta": [1]}]}',
     '{"choices": [{"delta": {"content": 5}}]}', "9" * 5000],
)  # fmt: skip
def test_malformed_chunk_is_a_fault(data: str) -> None:
    with pytest.raises(WireError):
        read(data)


def test_text_after_the_end_is_a_fault() -> None:
    with pytest.raises(WireError):
        read(chunk("a", finish="stop"), chunk("b"))


@pytest.mark.parametrize("error", [{"message": "secret"}, "secret", {"code": "secret words"}, {"type": 5}])
def test_error_in_the_stream_quotes_nothing(error: Any) -> None:
    with pytest.raises(MeshError) as caught:
        read(json.dumps({"error": error}))
    assert caught.value.reason == ErrorReason.ERROR_REASON_BACKEND_FAILED
    assert "secret" not in caught.value.message


def test_error_of_a_full_server_in_the_stream_is_overloaded() -> None:
    with pytest.raises(MeshError) as caught:
        read(json.dumps({"error": {"code": 429, "message": "slow down"}}))
    assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED


def test_body_that_ends_without_a_reason_is_a_fault() -> None:
    reader, _ = read(chunk("a"))
    with pytest.raises(WireError):
        reader.close()
