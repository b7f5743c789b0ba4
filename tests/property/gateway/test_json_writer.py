"""Frames back to JSON text: the pieces, joined, are the document, whatever it is and however it was cut."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.answers import document_chunks
from ssop_codec import Decoder, FrameKind
from ssop_gateway.core.faults import EdgeError
from ssop_gateway.core.json_writer import JsonWriter

CONTENT = {FrameKind.VALUE, FrameKind.PART, FrameKind.CLOSE}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# A path must fit the smallest frame: the codec refuses others.
KEYS = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=4)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.text("é\n", min_size=90, max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TREE = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    },
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "number"}},
}


def write(value: Any, schema: Any, buffer_bytes: int = 0, token_bytes: int = 4) -> str:
    decoder, writer = Decoder(), JsonWriter()
    chunks = document_chunks(value, schema=schema, buffer_bytes=buffer_bytes, token_bytes=token_bytes)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return "".join(writer.write(frame) for frame in frames if frame.kind in CONTENT)


@given(VALUES, st.sampled_from([128, 256, 0]), st.integers(1, 30))
@example({"": {"": [[], {}, [[]], {"~/": {}}]}}, 64, 1)
@example([], 64, 1)
@example({}, 64, 1)
@example("é" * 500, 64, 3)
def test_the_pieces_joined_are_the_document(value: Any, buffer_bytes: int, token_bytes: int) -> None:
    # A number that is the whole document is complete only with the byte after it.
    document = [value] if isinstance(value, int | float) else value
    assert json.loads(write(document, {}, buffer_bytes, token_bytes)) == document


@pytest.mark.parametrize(
    "value",
    [
        {"a": [{"b": "x" * 200}, {}, {"b": ""}], "pair": [1, "two"], "m": {"n": 1.5, "o": 2}},
        {"a": [], "pair": [], "m": {}},
        {"m": {"k": 1e300}},
    ],
)
def test_typed_trees_are_the_document_too(value: Any) -> None:
    assert json.loads(write(value, TREE, 64)) == value


def test_a_frame_that_follows_from_nothing_is_refused() -> None:
    decoder, writer = Decoder(), JsonWriter()
    frames = [
        f for chunk in document_chunks({"a": [{"b": "x"}], "m": {"n": 1}}, schema=TREE) for f in decoder.feed(chunk)
    ]
    content = [frame for frame in frames if frame.kind in CONTENT]
    closes = [frame for frame in content if frame.kind == FrameKind.CLOSE]
    with pytest.raises(EdgeError):
        writer.write(closes[-1])
