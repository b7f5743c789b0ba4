"""No answer of a model server, however broken, raises anything but the typed errors."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ssop_chassis.errors import MeshError
from ssop_inference.core.chat_stream import ChatStreamReader
from ssop_inference.core.message_stream import MessageStreamReader
from ssop_inference.core.upstream_errors import WireError, event_error, status_error
from ssop_inference.wire import Reader

TYPED = (WireError, MeshError)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["stop", "length", "\ud83d"]),
)
WORDS = """choices delta content finish_reason logprobs token bytes logprob top_logprobs usage prompt_tokens
    completion_tokens prompt_tokens_details cached_tokens timings predicted_n error type message content_block
    partial_json text stop_reason index code refusal"""
KEYS = st.sampled_from(WORDS.split())
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"]
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "delta": st.dictionaries(
            st.sampled_from(["content", "refusal", "reasoning_content"]), SCALARS | TREES, max_size=2
        ),
        "finish_reason": SCALARS,
        "logprobs": st.none() | st.fixed_dictionaries({"content": TREES | st.lists(TREES, max_size=3)}),
    },
)
CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": SCALARS | st.integers(-1, 3),
        "id": SCALARS | st.text(max_size=4),
        "function": TREES
        | st.fixed_dictionaries({}, optional={"name": SCALARS | st.just("f"), "arguments": SCALARS | TREES}),
    },
)
CALLING = st.fixed_dictionaries(
    {},
    optional={
        "delta": st.fixed_dictionaries({"tool_calls": TREES | st.lists(CALL | TREES, max_size=3)}),
        "finish_reason": SCALARS | st.just("tool_calls"),
    },
)
CALL_CHUNKS = st.fixed_dictionaries({"choices": st.lists(CALLING | CHOICE, max_size=2)})
CHUNKS = st.fixed_dictionaries({"choices": st.lists(CHOICE, max_size=2)}, optional={"usage": TREES, "timings": TREES})
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "delta": TREES | st.fixed_dictionaries({"type": TREES}),
        "content_block": TREES,
        "message": TREES,
        "usage": TREES,
        "error": TREES,
    },
)


def feed(reader: Reader, texts: list[str]) -> None:
    for text in texts:
        try:
            reader.feed("message", text)
        except TYPED:
            return
    try:
        reader.close()
    except TYPED:
        return
    assert reader.stop is not None


def write(trees: list[Any]) -> list[str]:
    return [json.dumps(tree) for tree in trees]


@given(st.lists(CHUNKS | TREES, max_size=4))
def test_chunks_of_any_shape_are_text_or_a_typed_error(trees: list[Any]) -> None:
    feed(ChatStreamReader(), write(trees))


@given(st.lists(CALL_CHUNKS | CHUNKS | TREES, max_size=5))
def test_calls_of_any_shape_are_calls_or_a_typed_error(trees: list[Any]) -> None:
    feed(ChatStreamReader(has_tools=True), write(trees))


@given(st.lists(EVENTS | TREES, max_size=5))
def test_blocks_of_any_shape_are_calls_or_a_typed_error(trees: list[Any]) -> None:
    feed(MessageStreamReader(is_tool=False, has_tools=True), write([{"type": "message_start", "message": {}}, *trees]))


@given(st.lists(EVENTS | TREES, max_size=4), st.booleans())
def test_events_of_any_shape_are_text_or_a_typed_error(trees: list[Any], is_tool: bool) -> None:
    started = [{"type": "message_start", "message": {}}, *trees]
    feed(MessageStreamReader(is_tool=is_tool), write(started))


@given(st.lists(st.text(max_size=20), max_size=3))
def test_text_of_any_kind_is_a_typed_error_or_nothing(texts: list[str]) -> None:
    feed(ChatStreamReader(), texts)
    feed(MessageStreamReader(is_tool=True), texts)


@given(st.integers(100, 999), st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()), TREES)
def test_refusal_of_any_shape_is_a_typed_error(status: int, headers: dict[str, str], tree: Any) -> None:
    error = status_error(status, headers, json.dumps(tree).encode(), now_s=1.8e9)
    assert error.to_status().code
    assert event_error(tree).to_status().code
