"""Where keys, items, commas and texts are given up: at the first byte after which nothing that conforms can come."""

import json
from typing import Any

import pytest

from helpers.codec_cases import encode, encode_slowly
from helpers.completions import Completer, scan
from ssop_codec import compile_schema

CLOSED = {"properties": {"name": {}, "nation": {}, "age": {}}, "additionalProperties": False}
MATCHED = {"patternProperties": {"^x-": {"type": "integer"}, "é$": False}, "additionalProperties": False}
CASES: list[tuple[Any, str, str, str, int]] = [
    (CLOSED, '{"nx', "additionalProperties", "", 3),
    # `name` came: only `nation` is left.
    (CLOSED, '{"name": 1, "nam', "additionalProperties", "", 15),
    (CLOSED, '{"name": 1, "\\u006e\\u0061m', "additionalProperties", "", 25),
    (CLOSED, '{"\\u007', "additionalProperties", "", 6),
    (CLOSED, '{"name": 1, "age": 1, "nation": 1, ', "additionalProperties", "", 33),
    ({"properties": {"a": False, "b": {}}, "additionalProperties": False}, '{"a', "additionalProperties", "", 2),
    ({"properties": {"a": False, "ab": {}}}, '{"a": 1}', "type", "/a", 3),
    ({"properties": {"a": {"type": "string", "enum": [1]}}}, '{"a": 1}', "enum", "/a", 3),
    (MATCHED, '{"x1', "additionalProperties", "", 3),
    (MATCHED, '{"x-1": 1, "é', "additionalProperties", "", 12),
    ({"anyOf": [CLOSED, {"required": ["z"], **CLOSED}]}, '{"nx', "anyOf", "", 3),
    ({"anyOf": [CLOSED, MATCHED]}, '{"name": 1, "name', "anyOf", "", 15),
    ({"anyOf": [{"maxItems": 1}, {"maxItems": 2, "items": False}]}, "[1,", "anyOf", "", 2),
    ({"anyOf": [{"maxItems": 1}, {"maxItems": 2}]}, "[1, 2, ", "anyOf", "", 5),
    ({"anyOf": [{"maxProperties": 1}, {"maxProperties": 0}]}, '{"a": 1, ', "anyOf", "", 7),
    ({"anyOf": [{"properties": {"a": False}}, {"properties": {"a": {"const": 1}}}]}, '{"a": 2', "anyOf", "", 6),
    ({"prefixItems": [{}], "items": False}, "[1, ", "items", "", 2),
    ({"items": {"type": "string", "enum": [1]}}, "[1", "type", "/0", 1),
    ({"maxItems": 1}, "[1,", "maxItems", "", 2),
    ({"enum": ["ab", "cd"]}, '"\\u0062', "enum", "", 6),
    ({"enum": ["ab", "cd"]}, '"ab\\', "enum", "", 3),
    ({"pattern": "^[é-ü]$"}, '"a', "pattern", "", 1),
    ({"pattern": "^[é-ü]$"}, '"é\\', "pattern", "", 3),
    ({"anyOf": [{"pattern": "^é"}, {"maxLength": 0}]}, b'"\xc4'.decode("latin-1"), "anyOf", "", 1),
    ({"anyOf": [{"enum": ["ab"]}, {"pattern": "^b"}]}, '"\\u0063', "anyOf", "", 6),
    ({"anyOf": [{"format": "date"}, {"format": "uuid"}]}, '"2024-1x', "anyOf", "", 7),
    ({"format": "date"}, '"2023-02-29"', "format", "", 10),
    ({"not": {"required": ["a"]}}, '{"a": 1}', "not", "", 3),
]


@pytest.mark.parametrize(("schema", "text", "rule", "pointer", "offset"), CASES)
def test_breaks_at(schema: Any, text: str, rule: str, pointer: str, offset: int) -> None:
    known = compile_schema(schema)
    data = text.encode("latin-1" if text[-1] == "\xc4" else "utf-8")
    violation = encode(known, data)[2]
    assert (violation.rule, violation.pointer, violation.offset_bytes) == (rule, pointer, offset)
    assert encode_slowly(known, data)[2] == violation
    assert encode(known, data[: offset + 1])[2] == violation
    assert encode(known, data[:offset])[2] is None


@pytest.mark.parametrize(
    ("schema", "prefix"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer", "minimum": 5}, "0"),
        ({"required": ["b", "a"], "properties": {"a": {}, "b": {}}}, '{"b": 1, "a'),
        ({"enum": ['quote"s', "tab"]}, '"quote\\'),
        ({"items": {"format": "date-time"}, "minItems": 2}, '["2024-'),
    ],
)
def test_completions_are_valid(schema: Any, prefix: str) -> None:
    completed = Completer(schema, []).complete(prefix.encode())
    assert completed is not None
    assert completed.startswith(prefix.encode())
    assert Completer(schema, []).validator.is_valid(json.loads(completed))


def test_nothing_completes_what_is_broken() -> None:
    assert Completer({"type": "integer", "maximum": 9}, []).complete(b"11") is None
    assert Completer(CLOSED, []).complete(b'{"x') is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("", "value", "")),
        ('{"a', ("{", "key", "a")),
        ('{"a"', ("{", "colon", "")),
        ('{"a": [1, -2', ("{[", "number", "-2")),
        ('["}\\"', ("[", "string", '}\\"')),
        ("[tr", ("[", "literal", "tr")),
        ('{"a": 1,', ("{", "next_key", "")),
        ("[1,", ("[", "value", "")),
        ("[", ("[", "first", "")),
        ("[]", ("", "after", "")),
    ],
)
def test_scan_says_what_is_open(text: str, found: tuple[str, str, str]) -> None:
    assert scan(text.encode()) == found
