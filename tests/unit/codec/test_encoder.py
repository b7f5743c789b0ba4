"""One fact per rule: what is judged, at which byte, and what the error says."""

from typing import Any

import pytest

from helpers.codec_cases import TREE, decode, encode
from ssop_codec import (
    DONE,
    INVALID,
    READY,
    CodecError,
    Encoder,
    FinishReason,
    FrameKind,
    IncompleteReason,
    Limits,
    SchemaError,
    Verdict,
    compile_schema,
    text_schema,
)

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def broken(schema: Any, text: str | bytes, **options: Any) -> tuple[str, str, int]:
    """Rule, pointer and offset of the violation; the decoder tells the same."""
    data = text.encode() if isinstance(text, str) else text
    chunks, verdict, violation, _ = encode(None if schema is None else compile_schema(schema), data, **options)
    assert verdict == Verdict.INVALID
    assert violation is not None
    end = decode(chunks)[0].end
    assert end is not None
    assert end.violation == violation
    return violation.rule, violation.pointer, violation.offset_bytes


@pytest.mark.parametrize(
    ("schema", "text", "rule", "pointer", "offset"),
    [
        ({"type": "string"}, "1", "type", "", 0),
        ({"type": "integer"}, "1.5 ", "type", "", 3),
        (OBJECT, '{"a":"x"}', "type", "/a", 5),
        (OBJECT, '{"a":1,"c":2}', "additionalProperties", "", 8),
        (OBJECT, '{"a":1,"":2}', "additionalProperties", "", 8),
        (OBJECT, '{"b":"x"}', "required", "", 8),
        (OBJECT, '{"a":1,"a":2}', "additionalProperties", "", 8),
        ({}, '{"k":1,"k":2}', "duplicateKey", "", 9),
        ({"enum": ["pending", "done"]}, '"pex"', "enum", "", 3),
        ({"enum": ["pending", "done"]}, '"pen"', "enum", "", 4),
        ({"enum": ["é"]}, b'"\xc3\xa8"', "enum", "", 2),
        ({"enum": ["é"]}, '"\\u00e8"', "enum", "", 6),
        ({"const": "a"}, '"b"', "const", "", 1),
        ({"const": 1}, "2 ", "const", "", 0),
        ({"const": True}, "false", "const", "", 0),
        ({"enum": [None, 1]}, "true", "enum", "", 0),
        ({"enum": [1, 2.5]}, "2.6 ", "enum", "", 2),
        ({"minimum": 10}, "9 ", "minimum", "", 1),
        ({"maximum": 10}, "11 ", "maximum", "", 2),
        ({"exclusiveMinimum": 1}, "1.0 ", "exclusiveMinimum", "", 3),
        ({"exclusiveMaximum": 1}, "1 ", "exclusiveMaximum", "", 1),
        ({"minimum": 0.1}, "0.09999999999999999999 ", "minimum", "", 22),
        ({"multipleOf": 3}, "10 ", "multipleOf", "", 2),
        ({"multipleOf": 0.1}, "0.35 ", "multipleOf", "", 4),
        ({"minLength": 2}, '"é"', "minLength", "", 3),
        ({"maxLength": 2}, '"abc"', "maxLength", "", 3),
        ({"maxLength": 1}, '"a\\n"', "maxLength", "", 2),
        ({"maxLength": 1}, '"aé"', "maxLength", "", 2),
        ({"format": "date"}, '"2023-02-29"', "format", "", 10),
        ({"minItems": 1}, "[]", "minItems", "", 1),
        ({"maxItems": 0}, "[1]", "maxItems", "", 1),
        ({"maxItems": 1}, "[1,2]", "maxItems", "", 2),
        ({"prefixItems": [{}], "items": False}, "[1,2]", "items", "", 2),
        ({"items": {"type": "null"}}, "[null,1]", "type", "/1", 6),
        ({"prefixItems": [{"type": "null"}]}, "[1]", "type", "/0", 1),
        ({"minProperties": 2}, '{"a":1}', "minProperties", "", 6),
        ({"maxProperties": 1}, '{"a":1,"b":2}', "maxProperties", "", 6),
        ({"maxProperties": 0}, '{"a":1}', "maxProperties", "", 1),
        ({"properties": {"a": False}}, '{"a":1}', "type", "/a", 3),
        ({"properties": {"x/y": {"type": "null"}}}, '{"x/y":1}', "type", "/x~1y", 7),
        ({"additionalProperties": {"type": "null"}}, '{"secret":1}', "type", "", 10),
        (None, "[1 2]", "syntax", "", 3),
        (None, '{"a" 1}', "syntax", "", 5),
        (None, "[1,]", "syntax", "/1", 3),
        (None, "01", "syntax", "", 1),
        (None, "-x", "syntax", "", 1),
        (None, "1.x", "syntax", "", 2),
        (None, "1ex", "syntax", "", 2),
        (None, "trux", "syntax", "", 3),
        (None, "NaN", "syntax", "", 0),
        (None, '"a\tb"', "syntax", "", 2),
        (None, '"\\x"', "syntax", "", 2),
        (None, '"\\u12g4"', "syntax", "", 5),
        (None, '"\\ud800"', "syntax", "", 7),
        (None, '"\\ud800x"', "syntax", "", 7),
        (None, '"\\ud800\\u0041"', "syntax", "", 12),
        (None, '"\\udc00"', "syntax", "", 6),
        (None, b'"\xff"', "utf8", "", 1),
        (None, b'"\xc0\xaf"', "utf8", "", 1),
        (None, b'"\xed\xa0\x80"', "utf8", "", 2),
        (None, b'"\xf4\x90\x80\x80"', "utf8", "", 2),
        (None, b"\xef\xbbx", "syntax", "", 2),
        (None, "1 2", "trailing", "", 2),
        (None, "{}{}", "trailing", "", 2),
    ],
)
def test_violation(schema: Any, text: str | bytes, rule: str, pointer: str, offset: int) -> None:
    assert broken(schema, text) == (rule, pointer, offset)


@pytest.mark.parametrize(
    ("cap", "text", "offset"),
    [
        ("max_depth", "[[[[", 2),
        ("max_document_bytes", "[1,2,3,4,5]", 2),
        ("max_whitespace_run_bytes", "[   1]", 3),
        ("max_key_bytes", '{"abc":1}', 4),
        ("max_number_bytes", "123", 2),
        ("max_object_keys", '{"a":1,"b":1,"c":1}', 15),
    ],
)
def test_limit_is_named(cap: str, text: str, offset: int) -> None:
    _, _, violation, _ = encode(compile_schema({}), text.encode(), limits=Limits(**{cap: 2}))
    assert violation is not None
    assert (violation.rule, violation.offset_bytes) == ("limit", offset)
    assert cap in violation.expected


def test_format_limit_is_named() -> None:
    schema = compile_schema({"format": "uri"})
    violation = encode(schema, b'"http://x"', limits=Limits(max_format_bytes=4))[2]
    assert (violation.rule, violation.offset_bytes) == ("limit", 5)


def test_deep_input_needs_no_stack() -> None:
    assert broken(None, "[" * 100_000) == ("limit", "/0" * 64, 64)


def test_missing_names_are_told() -> None:
    violation = encode(compile_schema(OBJECT), b"{}")[2]
    assert violation.expected == "the properties a"


def test_expected_holds_no_generated_text() -> None:
    violation = encode(compile_schema({"enum": ["yes", 1, None, True]}), b'"confidential"')[2]
    assert violation.expected == "one of: yes, 1, true, null"


def test_frames_before_the_violation_stand() -> None:
    decoder, frames = decode(encode(compile_schema(OBJECT), b'{"a":1,"b":2}')[0])
    assert [(f.path, f.value) for f in frames if f.kind == FrameKind.VALUE] == [("/a", 1)]
    assert decoder.result == {"a": 1}


def test_nothing_is_read_after_a_violation() -> None:
    encoder = Encoder(None)
    assert encoder.feed(b"]") & INVALID
    assert encoder.feed(b'{"a":1}') & INVALID
    encoder.finish()
    assert encoder.violation is not None
    assert encoder.violation.offset_bytes == 0


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"a":1', b'{"a', b"[1,", b'"abc', b'"\\u00', b"tru", b"-", b"1.", b"1e+"]
)
def test_open_document_is_incomplete(text: bytes) -> None:
    decoder, _ = decode(encode(None, text)[0])
    assert decoder.verdict == Verdict.INCOMPLETE
    assert decoder.end is not None
    assert decoder.end.incomplete_reason == IncompleteReason.STOPPED_EARLY


def test_reason_of_a_cut_is_told() -> None:
    encoder = Encoder(None)
    encoder.feed(b"[")
    encoder.finish(
        incomplete_reason=IncompleteReason.MAX_OUTPUT_TOKENS,
        finish_reason=FinishReason.LENGTH,
        input_tokens=7,
        output_tokens=300,
        cached_input_tokens=5,
    )
    end = decode(encoder.drain(True))[0].end
    assert end is not None
    assert (end.incomplete_reason, end.finish_reason) == (1, 2)
    assert (end.input_tokens, end.output_tokens, end.cached_input_tokens) == (7, 300, 5)


def test_number_waits_for_the_byte_after_it() -> None:
    encoder = Encoder(compile_schema({"type": "array", "items": {"type": "integer"}}))
    encoder.feed(b"[12")
    assert not encoder.has_field
    encoder.feed(b",")
    assert encoder.has_field


def test_top_level_number_ends_with_the_output() -> None:
    decoder, _ = decode(encode(None, b"42")[0])
    assert (decoder.result, decoder.verdict) == (42, Verdict.OK)


def test_top_level_number_of_a_cut_output_is_not_trusted() -> None:
    encoder = Encoder(None)
    encoder.feed(b"42")
    encoder.finish(incomplete_reason=IncompleteReason.MAX_OUTPUT_TOKENS)
    assert encoder.verdict == Verdict.INCOMPLETE
    assert not encoder.has_field


def test_finish_is_idempotent() -> None:
    encoder = Encoder(None)
    encoder.feed(b"1")
    encoder.finish()
    encoder.finish()
    assert len(decode(encoder.drain(True))[1]) == 3


def test_feed_after_finish_is_an_error() -> None:
    encoder = Encoder(None)
    encoder.finish()
    with pytest.raises(CodecError):
        encoder.feed(b"1")


def test_done_is_flagged_at_the_last_byte() -> None:
    encoder = Encoder(None)
    assert not encoder.feed(b'{"a":1') & DONE
    assert encoder.feed(b"}") & DONE
    assert encoder.is_done


def test_first_field_leaves_at_once_and_later_ones_wait() -> None:
    encoder = Encoder(compile_schema(OBJECT))
    assert encoder.feed(b'{"a":') == 0
    assert encoder.feed(b"1,") == READY
    first = encoder.take()
    assert [f.kind for f in decode([first])[1]] == [FrameKind.HEADER, FrameKind.VALUE]
    assert encoder.feed(b'"b":"x"') == 0
    second = encoder.flush()
    assert second
    assert encoder.flush() == b""
    assert decode([first, second])[0].result == {"a": 1, "b": "x"}


@pytest.mark.parametrize("data", [bytearray(b"[1]"), memoryview(b"[1]")])
def test_any_buffer_is_read(data: Any) -> None:
    encoder = Encoder(None)
    encoder.feed(data)
    assert encoder.is_done


def test_strided_buffer_is_refused() -> None:
    with pytest.raises(BufferError):
        Encoder(None).feed(memoryview(b"[1]xx")[::2])


@pytest.mark.parametrize("size", [1, 63, -1])
def test_small_buffer_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="64"):
        Encoder(None, stream_buffer_bytes=size)


def test_key_that_fits_no_header_is_named() -> None:
    schema = compile_schema({"properties": {"k" * 80: {}}})
    with pytest.raises(SchemaError) as caught:
        Encoder(schema, stream_buffer_bytes=64)
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/" + "k" * 80, "stream_buffer_size")


def test_path_that_fits_no_frame_is_a_limit() -> None:
    violation = encode(None, b'{"' + b"k" * 80 + b'":1}', stream_buffer_bytes=64)[2]
    assert violation.rule == "limit"
    assert "stream_buffer_size" in violation.expected


def test_no_chunk_is_larger_than_the_smallest_buffer() -> None:
    properties = {f"key_{i}": {"type": "string"} for i in range(30)}
    text = "{" + ",".join(f'"key_{i}":"{"é" * i}"' for i in range(30)) + "}"
    chunks = encode(compile_schema({"properties": properties}), text.encode(), stream_buffer_bytes=64)[0]
    assert max(map(len, chunks)) <= 64
    assert decode(chunks)[0].result == {f"key_{i}": "é" * i for i in range(30)}


def test_parts_are_joined_by_the_last_piece() -> None:
    text = "€" * 100
    chunks = encode(compile_schema({"type": "string"}), f'"{text}"'.encode(), stream_buffer_bytes=64)[0]
    decoder, frames = decode(chunks)
    parts = [f for f in frames if f.kind == FrameKind.PART]
    last = next(f for f in frames if f.kind == FrameKind.VALUE)
    assert last.parts == len(parts) > 1
    assert "".join(str(f.value) for f in (*parts, last)) == decoder.result == text


def test_enum_members_longer_than_the_buffer_come_in_parts_after_the_match() -> None:
    member = "m" * 200
    schema = compile_schema({"enum": [member, "n"]})
    encoder = Encoder(schema, stream_buffer_bytes=64)
    encoder.feed(b'"' + b"m" * 199)
    assert not encoder.has_field
    encoder.feed(b'm"')
    encoder.finish()
    assert decode(encoder.drain(True))[0].result == member


def test_null_is_explicit() -> None:
    decoder, frames = decode(encode(compile_schema({"type": "null"}), b"null")[0])
    assert [f.kind for f in frames] == [FrameKind.HEADER, FrameKind.VALUE, FrameKind.END]
    assert decoder.result is None


def test_containers_close_with_their_counts() -> None:
    _, frames = decode(encode(None, b'{"a":[1,2,3],"b":{}}')[0])
    closes = [(f.path, f.size) for f in frames if f.kind == FrameKind.CLOSE]
    assert closes == [("/a", 3), ("/b", 0), ("", 2)]


def test_recursion_is_followed_in_paths() -> None:
    text = b'{"v":1,"kids":[{"v":2,"next":{"v":3,"any":{"x":[4]}}}],"by_name":{"k":{"v":5}}}'
    _, frames = decode(encode(compile_schema(TREE), text)[0])
    values = {f.path: f.value for f in frames if f.kind == FrameKind.VALUE}
    assert values == {
        "/v": 1,
        "/kids/0/v": 2,
        "/kids/0/next/v": 3,
        "/kids/0/next/any/x/0": 4,
        "/by_name/k/v": 5,
    }


def test_spans_are_the_bytes_of_values() -> None:
    text = b'{"a": 12, "b": "x\\n"}'
    chunks, _, _, spans = encode(compile_schema(OBJECT), text)
    _, frames = decode(chunks)
    by_seq = {f.seq: f.path for f in frames}
    assert [(by_seq[seq], text[start:end]) for seq, start, end in spans] == [("/a", b"12"), ("/b", b'"x\\n"')]


def test_continuation_has_no_header() -> None:
    encoder = Encoder(compile_schema(OBJECT), first_seq=5)
    encoder.feed(b'{"a":1}')
    encoder.finish()
    assert [head[:2] for head in _heads(encoder)] == [(2, 5), (4, 6), (5, 7)]


def test_tool_document_names_its_tool() -> None:
    encoder = Encoder(compile_schema(OBJECT), document=1, tool_name="weather", tool_call_id="c1")
    encoder.feed(b'{"a":1}')
    encoder.finish()
    decoder, frames = decode(encoder.drain(True))
    header = frames[0].header
    assert header is not None
    assert (header.tool_name, header.tool_call_id) == ("weather", "c1")
    assert {f.document for f in frames} == {1}
    assert decoder.documents[1].result == {"a": 1}
    assert decoder.result is None
    assert all(not f.delta for f in frames)


def test_tool_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="tool_name"):
        Encoder(compile_schema(OBJECT), stream_buffer_bytes=64, document=1, tool_name="t" * 60)


def _heads(encoder: Encoder) -> list[tuple[int, int, int]]:
    from ssop_codec import scan_heads  # noqa: PLC0415

    return [head for chunk in encoder.drain(True) for head in scan_heads(chunk)]


class TestText:
    """Plain text."""

    def test_flush_sends_what_came(self) -> None:
        encoder = Encoder(text_schema())
        encoder.feed(b"Hello")
        first = encoder.drain(True)
        encoder.feed(b" world")
        second = encoder.drain(True)
        encoder.finish()
        decoder, frames = decode(first + second + encoder.drain(True))
        assert decoder.text == decoder.result == "Hello world"
        assert [f.kind for f in frames] == [1, 3, 3, 2, 5]

    def test_code_point_in_pieces_waits(self) -> None:
        encoder = Encoder(text_schema())
        encoder.feed("a€".encode()[:2])
        _, frames = decode(encoder.drain(True))
        assert frames[-1].value == "a"

    def test_empty_text_is_a_value(self) -> None:
        encoder = Encoder(text_schema())
        encoder.finish()
        decoder, _ = decode(encoder.drain(True))
        assert (decoder.result, decoder.verdict) == ("", Verdict.OK)

    def test_cut_text_keeps_what_came(self) -> None:
        encoder = Encoder(text_schema())
        encoder.feed(b"Hel")
        encoder.finish(incomplete_reason=IncompleteReason.DEADLINE)
        decoder, _ = decode(encoder.drain(True))
        assert (decoder.text, decoder.verdict) == ("Hel", Verdict.INCOMPLETE)

    @pytest.mark.parametrize(("data", "offset"), [(b"a\xff", 1), (b"\xc3(", 1), (b"ab\xe2\x82", 4)])
    def test_bytes_that_are_no_utf8_are_invalid(self, data: bytes, offset: int) -> None:
        encoder = Encoder(text_schema())
        encoder.feed(data)
        encoder.finish()
        assert encoder.violation is not None
        assert (encoder.violation.rule, encoder.violation.offset_bytes) == ("utf8", offset)


class TestEnvelope:
    """What stands around the document of a model that is not constrained."""

    @pytest.mark.parametrize(
        "text",
        [
            '{"a":1}',
            '\ufeff {"a":1}',
            'Here it is: {"a":1}',
            '```json\n{"a":1}\n```\nAnything {else}',
            '``` {"a":1}```',
            '<think>{"a":0} [</think>\n{"a":1}',
            '<think>x</thi</think>{"a":1}',
            'Sure!\n<think>y</think>\n```\n{"a":1}\n```',
        ],
    )
    def test_document_is_found(self, text: str) -> None:
        decoder, _ = decode(encode(compile_schema(OBJECT), text.encode(), envelope=True)[0])
        assert (decoder.result, decoder.verdict) == ({"a": 1}, Verdict.OK)

    def test_scalar_is_found_in_a_fence(self) -> None:
        decoder, _ = decode(encode(compile_schema({"type": "integer"}), b"```\n42\n```", envelope=True)[0])
        assert decoder.result == 42

    def test_inside_is_strict(self) -> None:
        assert broken(OBJECT, 'Here: {"a":1,}', envelope=True)[0] == "syntax"

    def test_without_document_it_is_incomplete(self) -> None:
        assert encode(compile_schema(OBJECT), b"I can't do that.", envelope=True)[1] == Verdict.INCOMPLETE

    def test_without_envelope_a_fence_is_a_violation(self) -> None:
        assert broken(None, "```json\n{}") == ("syntax", "", 0)
