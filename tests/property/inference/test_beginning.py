"""Beginnings of documents that nobody should send, and of all documents that may come."""

import json
from typing import Any

import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.beginnings import TREE, TREE_DOCUMENT, cut
from helpers.replay_model import SCHEMA, write_document
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import compile_schema
from ssop_inference.core.beginning import read_beginning
from ssop_inference.core.constraint import choose_constraint
from ssop_inference.core.document import DocumentWriter
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.remainder import write_remainder
from ssop_inference.gate import SchemaGate

TREE_BEGINNINGS = list(cut(TREE, json.dumps(TREE_DOCUMENT, ensure_ascii=False)))
COMPILED = compile_schema(json.dumps(TREE))
GATE = SchemaGate()
TOKENIZER = llguidance.LLTokenizer("byte")
LIMITED: Any = choose_constraint(SCHEMA, GATE, EngineLimits()).schema


@given(st.sampled_from(TREE_BEGINNINGS), st.data())
def test_bytes_that_were_changed_are_refused_or_read(request: Any, data: st.DataObject) -> None:
    chunk = bytearray(request.chunk)
    for _ in range(data.draw(st.integers(1, 4))):
        chunk[data.draw(st.integers(0, len(chunk) - 1))] = data.draw(st.integers(0, 255))
    reason = None
    try:
        beginning = read_beginning(bytes(chunk), request.next_seq)
        DocumentWriter(
            COMPILED,
            stream_buffer_bytes=beginning.stream_buffer_bytes,
            is_envelope=False,
            has_logprobs=False,
            beginning=beginning,
        )
    except MeshError as error:
        reason = error.reason
    assert reason in (None, ErrorReason.ERROR_REASON_REQUEST_INVALID, ErrorReason.ERROR_REASON_UNSUPPORTED)


@given(st.integers(0, 2**64 - 1))
def test_number_that_is_not_the_next_is_refused(next_seq: int) -> None:
    request = TREE_BEGINNINGS[3]
    if next_seq == request.next_seq:
        return
    with pytest.raises(MeshError) as caught:
        read_beginning(request.chunk, next_seq)
    assert caught.value.reason == ErrorReason.ERROR_REASON_REQUEST_INVALID


@given(st.integers(0, 2**32 - 1), st.sampled_from([96, 256, 4096]), st.data())
def test_rest_of_any_document_is_in_the_grammar_of_the_rest(seed: int, buffer_bytes: int, data: st.DataObject) -> None:
    text = json.dumps(write_document(f"{seed:08x}", "x"), ensure_ascii=False)
    beginnings = list(cut(SCHEMA, text, buffer_bytes=buffer_bytes))
    request = data.draw(st.sampled_from(beginnings))
    beginning = read_beginning(request.chunk, request.next_seq)
    assert text.startswith(beginning.text)
    if not beginning.is_whole:
        matcher = llguidance.LLMatcher(TOKENIZER, write_remainder(LIMITED, beginning), log_level=0)
        matcher.consume_tokens(list(text[len(beginning.text) :].encode()))
        assert matcher.is_accepting()
