"""The encoder and its slow twin make the same bytes, however the input is cut."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import (
    RELAXED,
    SCHEMAS,
    TREE,
    VALUES,
    Made,
    broken_texts,
    encode,
    encode_slowly,
    fitting,
    run,
    split,
    texts_of,
)
from ssop_codec import Encoder, Limits, SchemaError, compile_schema, text_schema
from ssop_codec import _encoder_py as twin

PREAMBLES = (b"", b"Here: ", b"```json\n", b"<think>{1}</think>", b"<thi<think></thi</think>")
BUFFERS = st.sampled_from((64, 65, 100, 128, 256, 1024))
SMALL = Limits(
    max_depth=4,
    max_whitespace_run_bytes=3,
    max_key_bytes=6,
    max_number_bytes=12,
    max_format_bytes=12,
    max_object_keys=2,
    max_document_bytes=120,
)


def made(make: Callable[..., Made], schema: Any, data: bytes, options: dict[str, Any]) -> Made | str:
    """What comes out, or the refusal in words."""
    try:
        return make(schema, data, **options)
    except SchemaError as error:
        return str(error)


def compare(schema: Any, data: bytes, **options: Any) -> None:
    """Refused alike, or the same chunks, verdict, violation and spans."""
    fast = made(encode, schema, data, options)
    assert fast == made(encode_slowly, schema, data, options)
    if not isinstance(fast, str):
        assert all(len(chunk) <= options.get("stream_buffer_bytes", 1 << 30) for chunk in fast[0])


@RELAXED
@given(st.data(), SCHEMAS, BUFFERS)
def test_fitting_documents_give_the_same_bytes(data: st.DataObject, schema: Any, buffer: int) -> None:
    text = data.draw(texts_of(data.draw(fitting(schema))))
    compare(compile_schema(schema), text, stream_buffer_bytes=buffer)


@RELAXED
@given(st.data(), SCHEMAS, BUFFERS)
def test_broken_documents_give_the_same_bytes(data: st.DataObject, schema: Any, buffer: int) -> None:
    text = data.draw(broken_texts(data.draw(fitting(schema))))
    compare(compile_schema(schema), text, stream_buffer_bytes=buffer)


@RELAXED
@given(st.data(), SCHEMAS, VALUES)
def test_foreign_documents_give_the_same_bytes(data: st.DataObject, schema: Any, value: Any) -> None:
    compare(compile_schema(schema), data.draw(texts_of(value)))


@RELAXED
@given(st.data(), VALUES, BUFFERS)
def test_raw_documents_give_the_same_bytes(data: st.DataObject, value: Any, buffer: int) -> None:
    compare(None, data.draw(texts_of(value) | broken_texts(value)), stream_buffer_bytes=buffer)


@RELAXED
@given(st.data(), SCHEMAS, VALUES, st.booleans())
def test_small_limits_break_alike(data: st.DataObject, schema: Any, value: Any, raw: bool) -> None:
    text = data.draw(texts_of(value) | broken_texts(value) | texts_of(data.draw(fitting(schema))))
    compare(None if raw else compile_schema(schema), text, limits=SMALL, stream_buffer_bytes=64)


NODES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.fixed_dictionaries(
        {"v": st.integers()},
        optional={
            "kids": st.lists(NODES, max_size=2),
            "next": st.none() | NODES,
            "by_name": st.dictionaries(st.text(max_size=3), NODES, max_size=1),
            "any": VALUES,
        },
    )
)


@RELAXED
@given(st.data(), NODES, BUFFERS)
def test_recursive_documents_give_the_same_bytes(data: st.DataObject, value: Any, buffer: int) -> None:
    text = data.draw(texts_of(value) | broken_texts(value))
    compare(compile_schema(TREE), text, stream_buffer_bytes=buffer)


@RELAXED
@given(st.data(), SCHEMAS | st.none(), VALUES, st.sampled_from(PREAMBLES))
def test_envelopes_give_the_same_bytes(data: st.DataObject, schema: Any, value: Any, before: bytes) -> None:
    text = before + data.draw(texts_of(value)) + data.draw(st.sampled_from((b"", b"\n```\nDone {")))
    compare(None if schema is None else compile_schema(schema), text, envelope=True)


@RELAXED
@given(st.text("<think>/`{ \n", max_size=30), SCHEMAS)
def test_odd_preambles_give_the_same_bytes(text: str, schema: Any) -> None:
    compare(compile_schema(schema), text.encode() + b'{"a": 1}', envelope=True)


@RELAXED
@given(st.binary(max_size=40) | st.text(max_size=200).map(str.encode), st.lists(st.integers(0, 200), max_size=5))
def test_text_gives_the_same_bytes(data: bytes, cuts: list[int]) -> None:
    pieces = split(data, cuts)
    for flush in (False, True):
        options: dict[str, Any] = {"flush": flush, "stream_buffer_bytes": 64}
        fast = run(Encoder, text_schema(), pieces, **options)
        assert fast == run(twin.Encoder, text_schema(), pieces, **options)


@RELAXED
@given(st.data(), SCHEMAS, st.lists(st.integers(0, 1000), max_size=6), BUFFERS)
def test_any_cut_gives_the_same_frames(data: st.DataObject, schema: Any, cuts: list[int], buffer: int) -> None:
    value = data.draw(fitting(schema))
    text = data.draw(texts_of(value) | broken_texts(value))
    compiled = compile_schema(schema)
    try:
        whole = encode(compiled, text, stream_buffer_bytes=buffer)
    except SchemaError:
        return
    for pieces in (split(text, cuts), [text[i : i + 1] for i in range(len(text))]):
        assert run(Encoder, compiled, pieces, stream_buffer_bytes=buffer) == whole
        flushed = run(Encoder, compiled, pieces, stream_buffer_bytes=buffer, flush=True)
        assert b"".join(flushed[0]) == b"".join(whole[0])
        assert flushed[1:] == whole[1:]
