"""What goes in comes out: documents, protobuf bytes, verdicts of another validator."""

import json
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED, SCHEMAS, VALUES, broken_texts, decode, encode, fitting, texts_of
from ssop.v1 import frame_pb2
from ssop_codec import FrameKind, SchemaError, Verdict, compile_schema, scan_heads


def same(got: Any, want: Any) -> bool:
    """Equal, with a number that the wire holds in another form equal to its text."""
    if isinstance(want, dict):
        return isinstance(got, dict) and got.keys() == want.keys() and all(same(got[k], want[k]) for k in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, bool) or want is None or isinstance(want, str):
        return type(got) is type(want) and got == want
    return isinstance(got, (int, float, Decimal)) and not isinstance(got, bool) and got == want


@RELAXED
@given(st.data(), VALUES, st.sampled_from((0, 256)))
def test_raw_documents_come_back(data: st.DataObject, value: Any, buffer: int) -> None:
    chunks, verdict, violation, _ = encode(None, data.draw(texts_of(value)), stream_buffer_bytes=buffer)
    if violation is not None:
        assert violation.rule == "limit"
        return
    decoder, _ = decode(chunks)
    assert verdict == decoder.verdict == Verdict.OK
    assert same(decoder.result, value)
    assert decoder.missing == 0
    assert decoder.frames_received == decoder.frames_verified == decoder.end.frames  # type: ignore[union-attr]


@RELAXED
@given(st.data(), SCHEMAS)
def test_checked_documents_come_back(data: st.DataObject, schema: Any) -> None:
    value = data.draw(fitting(schema))
    chunks, verdict, _, _ = encode(compile_schema(schema), data.draw(texts_of(value)))
    assume(verdict == Verdict.OK)
    decoder, frames = decode(chunks)
    assert same(decoder.result, value)
    if isinstance(value, dict):
        merged: dict[str, Any] = {}
        for frame in frames:
            merged.update(frame.delta)
        assert same(merged, value)


@RELAXED
@given(st.data(), SCHEMAS, st.sampled_from((64, 128, 0)))
def test_stubs_read_the_chunks_and_write_them_back(data: st.DataObject, schema: Any, buffer: int) -> None:
    value = data.draw(fitting(schema))
    text = data.draw(texts_of(value) | broken_texts(value))
    try:
        chunks = encode(compile_schema(schema), text, stream_buffer_bytes=buffer)[0]
    except SchemaError:
        return
    seq = 0
    for chunk in chunks:
        message = frame_pb2.Chunk.FromString(chunk)
        assert message.SerializeToString(deterministic=True) == chunk
        for frame, head, decoded in zip(message.frames, scan_heads(chunk), _frames(chunk), strict=True):
            seq += 1
            assert head == (frame.kind, frame.seq, frame.node)
            assert frame.seq == seq
            assert frame.SerializeToString(deterministic=True) == decoded


def _frames(chunk: bytes) -> list[bytes]:
    message = frame_pb2.Chunk.FromString(chunk)
    return [frame.SerializeToString(deterministic=True) for frame in message.frames]


def _is_plain(value: Any) -> bool:
    """Numbers that the other validator compares as exactly as this one."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, (int, float)) or abs(value) < 2**53


@RELAXED
@given(st.data(), SCHEMAS)
def test_verdict_agrees_with_another_validator(data: st.DataObject, schema: Any) -> None:
    value = data.draw(fitting(schema) | VALUES)
    assume(_is_plain(value))
    text = json.dumps(value)
    verdict, violation = encode(compile_schema(schema), text.encode())[1:3]
    assume(violation is None or violation.rule != "limit")
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    assert (verdict == Verdict.OK) == validator.is_valid(json.loads(text))


@RELAXED
@given(st.data(), SCHEMAS)
def test_lost_chunks_are_counted_and_nothing_else_breaks(data: st.DataObject, schema: Any) -> None:
    text = data.draw(texts_of(data.draw(fitting(schema))))
    try:
        chunks = encode(compile_schema(schema), text, stream_buffer_bytes=64)[0]
    except SchemaError:
        return
    lost = {i for i in range(1, len(chunks) - 1) if data.draw(st.booleans())}
    kept = [chunk for i, chunk in enumerate(chunks) if i not in lost]
    gone = sum(len(scan_heads(chunk)) for i, chunk in enumerate(chunks) if i in lost)
    decoder, frames = decode(kept)
    assert decoder.missing == gone
    assert decoder.frames_received == len(frames)


def test_every_kind_of_frame_is_reached() -> None:
    compiled = compile_schema({"type": "array", "items": {"type": "string"}})
    chunks = encode(compiled, b'["' + b"x" * 300 + b'"]', stream_buffer_bytes=64)[0]
    _, frames = decode(chunks)
    assert {frame.kind for frame in frames} == {kind for kind in FrameKind if kind < 16}


@pytest.mark.parametrize("schema", [True, {}, {"type": ["array", "object", "string", "number", "boolean", "null"]}])
def test_untyped_schemas_take_everything(schema: Any) -> None:
    text = b'{"a":[1,2.5,"x",null,true,{"b":[]}]}'
    decoder, _ = decode(encode(compile_schema(schema), text)[0])
    assert same(decoder.result, json.loads(text))
