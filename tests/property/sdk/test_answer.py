"""For any document and any cut of its chunks the deltas add up to the answer."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.answers import document_chunks
from ssop_sdk.answer import Answer
from ssop_sdk.json_text import dump_json

SCHEMA: dict[str, Any] = {"type": "object"}
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
DOCUMENTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=6)


@settings(max_examples=60, deadline=None)
@given(document=DOCUMENTS, token_bytes=st.integers(1, 40), joined=st.integers(1, 5))
def test_deltas_add_up_whatever_the_chunks(document: dict[str, Any], token_bytes: int, joined: int) -> None:
    chunks = document_chunks(document, schema=SCHEMA, token_bytes=token_bytes)
    answer = Answer("r")
    result: dict[str, Any] = {}
    for start in range(0, len(chunks), joined):
        for frame in answer.feed(b"".join(chunks[start : start + joined])):
            result.update(frame.delta)
    answer.finish({})
    assert result == answer.load_result() == document


@settings(max_examples=60, deadline=None)
@given(document=DOCUMENTS)
def test_json_text_reads_back(document: dict[str, Any]) -> None:
    assert json.loads(dump_json(document)) == document


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200), token_bytes=st.integers(1, 20))
def test_plain_text_is_joined_exactly(text: str, token_bytes: int) -> None:
    answer = Answer("r")
    for chunk in document_chunks(text, schema=None, token_bytes=token_bytes):
        answer.feed(chunk)
    answer.finish({})
    assert answer.load_result() == text
