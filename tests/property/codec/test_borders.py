"""Strings are read by blocks of bytes: whatever stands at the border of one, the frames are those of the twin."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.codec_cases import RELAXED, encode, encode_slowly, run, split
from ssop_codec import Encoder, compile_schema

BORDERS = tuple(border + by for border in (8, 16, 32, 64) for by in (-2, -1, 0, 1))
ODD_PIECES = (
    *('\\"', "\\\\", "\\n", "\\u0041", "\\u00e9", "\\ud83d\\ude00", "\\uD83D\\uDE00"),
    *("é", "漢", "😀", "\u0800", "\uffff", "\U0010ffff", "é漢😀" * 3, "漢" * 12),
)
BROKEN_PIECES = (
    *(
        b"\x00",
        b"\x1f",
        b"\\",
        b"\\x",
        b"\\u12",
        b"\\u12g4",
        b"\\ud83d",
        b"\\ud83dx",
        b"\\ud83d\\u0041",
        b"\\ude00",
        b'"',
    ),
    *(b"\x80", b"\xc3", b"\xc3(", b"\xc1\x81", b"\xe0\x80\x80", b"\xe6\xbc", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf5"),
)
SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {
            "free": {"type": "string"},
            "short": {"type": "string", "minLength": 3, "maxLength": 64},
            "fits": {"type": "string", "pattern": "^[^x]*$"},
            "x" * 40: {"type": "array", "items": {"type": "string"}},
            "é漢": {"enum": ["a" * 15, "a" * 16, "a" * 17, "a" * 16 + "é", "漢" * 11]},
        },
        "additionalProperties": {"type": "string"},
    }
)
KEYS = ("free", "short", "fits", "x" * 40, "é漢", "é漢".encode("unicode-escape").decode(), "other", "y" * 33, "k\\n")


def document(key: str, text: bytes) -> bytes:
    value = b'["%b", "%b"]' % (text, text) if key.startswith("x") else b'"%b"' % text
    return b'{ "%b":%b ,"free":"end"}' % (key.encode(), value)


def check(data: bytes, buffer: int, *cuts: list[int]) -> None:
    made = encode(SCHEMA, data, stream_buffer_bytes=buffer)
    assert made == encode_slowly(SCHEMA, data, stream_buffer_bytes=buffer)
    for some in cuts:
        assert run(Encoder, SCHEMA, split(data, some), stream_buffer_bytes=buffer) == made


@pytest.mark.parametrize("piece", [piece.encode() for piece in ODD_PIECES] + list(BROKEN_PIECES))
def test_odd_pieces_at_borders_are_read_as_by_the_twin(piece: bytes) -> None:
    for border in BORDERS:
        for behind in (0, 1, 15, 16, 33):
            data = document("free", b"a" * border + piece + b"b" * behind)
            check(data, 256, [border + 11, border + 12], [border + 10 + len(piece)])


@pytest.mark.parametrize("key", KEYS)
def test_keys_and_rules_at_borders_are_judged_as_by_the_twin(key: str) -> None:
    for border in BORDERS:
        for text in (b"a" * border, "é".encode() * border, b"a" * border + b"x", b"\\u0061" * border):
            check(document(key, text), 128, [len(key) + 8], list(range(0, 200, 16)))


@RELAXED
@given(
    st.lists(
        st.sampled_from([piece.encode() for piece in ODD_PIECES])
        | st.sampled_from([b"a" * n for n in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33)]),
        max_size=12,
    ),
    st.sampled_from(BROKEN_PIECES) | st.just(b""),
    st.sampled_from(KEYS),
    st.sampled_from((64, 80, 128, 512)),
    st.lists(st.integers(0, 600), max_size=5),
)
def test_mixed_strings_are_read_as_by_the_twin(
    pieces: list[bytes], broken: bytes, key: str, buffer: int, cuts: list[int]
) -> None:
    check(document(key, b"".join(pieces) + broken), buffer, cuts, list(range(0, 600, 16)), list(range(600)))


NUMBERS = (
    *("0", "-0", "-0.0", "0.0", "00", "01", "-01", "1.", ".5", "-", "--1", "1-", "+1", "1.5", "-1.50", "1e2", "1E+2"),
    *("999999999999999", "9999999999999999", "999999999999999999", "9999999999999999999", "-9223372036854775808"),
    *(
        "9223372036854775808",
        "0.1",
        "123456789012345.5",
        "1234567890123456.5",
        "0.000000000000001",
        "0." + "0" * 30 + "1",
    ),
    *(
        "99999999999999.9",
        "999999999999999.9",
        "1." + "0" * 25,
        "1.0x",
        "1x",
        "1 ",
        "1\x0b",
        "12345678901234567.1234567",
    ),
)
AROUND: tuple[dict[str, Any], ...] = (
    {"type": "number"},
    {"type": "integer"},
    {"type": "integer", "minimum": -5, "exclusiveMaximum": 10, "multipleOf": 2},
    {"type": "number", "minimum": 0, "maximum": 1.5},
    {"type": "number", "exclusiveMinimum": 0.1, "maximum": 1e15},
    {"enum": [1, 1.5, 100, 0]},
    {},
)


@pytest.mark.parametrize("rules", AROUND, ids=json.dumps)
def test_numbers_are_read_whole_as_by_the_twin(rules: dict[str, Any]) -> None:
    schema = compile_schema({"type": "array", "items": rules})
    for number in NUMBERS:
        for data in (f"[{number}]", f"[ {number} ,{number},true]", f"[{number}        ", f"[[{number}]       ]"):
            assert encode(schema, data.encode()) == encode_slowly(schema, data.encode())
            cut = run(Encoder, schema, [data.encode()[:3], data.encode()[3:]])
            assert cut == encode(schema, data.encode())
