"""Unions and the like: the fast judge is the slow one, and both are what another validator says."""

import json
from typing import Any

import jsonschema_rs
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED, broken_texts, encode, encode_slowly, run, texts_of
from helpers.judged_cases import WORLD, judged_schemas
from ssop_codec import Encoder, Schema, SchemaError, Verdict, compile_schema


def compiled(schema: Any) -> Schema:
    try:
        return compile_schema(schema)
    except SchemaError:
        # It refers to itself without a value in between, or expands beyond a cap.
        assume(False)
        raise


@RELAXED
@given(st.data(), judged_schemas(), WORLD)
def test_twin_makes_the_same_bytes(data: st.DataObject, schema: Any, value: Any) -> None:
    known = compiled(schema)
    text = data.draw(texts_of(value))
    assert encode(known, text) == encode_slowly(known, text)


@RELAXED
@given(st.data(), judged_schemas(), WORLD)
def test_twin_breaks_alike(data: st.DataObject, schema: Any, value: Any) -> None:
    known = compiled(schema)
    text = data.draw(broken_texts(value))
    assert encode(known, text, stream_buffer_bytes=64) == encode_slowly(known, text, stream_buffer_bytes=64)


@RELAXED
@given(judged_schemas(), st.lists(WORLD, min_size=1, max_size=5))
def test_verdict_is_that_of_another_validator(schema: Any, values: list[Any]) -> None:
    known = compiled(schema)
    other = jsonschema_rs.Draft202012Validator(schema)
    for value in values:
        _, verdict, violation, _ = encode(known, json.dumps(value).encode())
        assert (verdict == Verdict.OK) == other.is_valid(value), violation


@RELAXED
@given(judged_schemas(), WORLD, st.integers(1, 5))
def test_any_cut_gives_the_same(schema: Any, value: Any, size: int) -> None:
    known = compiled(schema)
    text = json.dumps(value, ensure_ascii=False).encode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert run(Encoder, known, pieces) == encode(known, text)


@RELAXED
@given(judged_schemas(), WORLD)
def test_violation_is_told_at_its_byte(schema: Any, value: Any) -> None:
    known = compiled(schema)
    text = json.dumps(value).encode()
    _, _, violation, _ = encode(known, text)
    if violation is None:
        return
    encoder = Encoder(known)
    encoder.feed(text[: violation.offset_bytes])
    assert encoder.violation is None
