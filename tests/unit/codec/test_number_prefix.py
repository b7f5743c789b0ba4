"""Numbers are judged at the first byte after which none that conforms can come."""

from typing import Any

import pytest

from helpers.codec_cases import encode, encode_slowly
from ssop_codec import compile_schema

DRAFT_04 = "http://json-schema.org/draft-04/schema#"


@pytest.mark.parametrize(
    ("schema", "text", "rule", "offset"),
    [
        # No integer below 65,536 begins with these digits; 6.5536 does.
        ({"type": "integer", "maximum": 65535}, "[65536]", "maximum", 5),
        ({"type": "number", "maximum": 65535}, "[65536]", "maximum", 6),
        ({"type": "integer", "maximum": 10}, "[1.5]", "type", 3),
        ({"type": "integer"}, "[1.5]", "type", 4),
        ({"type": "integer"}, "[15e-2]", "type", 5),
        ({"type": "integer"}, "[150e-2]", "type", 6),
        # 100 can still become 1, by e-2.
        ({"type": "integer", "maximum": 10}, "[1000]", "maximum", 5),
        ({"type": "integer", "maximum": 10}, "[1001]", "maximum", 4),
        # 0 can still become 0.1e9.
        ({"type": "integer", "minimum": 5}, "[0]", "minimum", 2),
        ({"type": "integer", "minimum": 5, "$schema": DRAFT_04}, "[0]", "minimum", 1),
        ({"type": "integer", "$schema": DRAFT_04}, "[1.0]", "type", 2),
        ({"type": "integer", "$schema": DRAFT_04}, "[1e2]", "type", 2),
        ({"minimum": 10, "maximum": 15}, "[2]", "minimum", 1),
        ({"minimum": 10, "maximum": 15}, "[16]", "maximum", 2),
        ({"minimum": 10, "maximum": 15}, "[1e2]", "maximum", 3),
        ({"minimum": 10, "maximum": 15}, "[1e-]", "minimum", 3),
        ({"minimum": 0}, "[-1]", "minimum", 2),
        ({"minimum": 0}, "[-0e]", "syntax", 4),
        ({"exclusiveMinimum": 0}, "[-0]", "exclusiveMinimum", 1),
        ({"maximum": -3}, "[5]", "maximum", 1),
        ({"exclusiveMaximum": 0, "exclusiveMinimum": -0.5}, "[-5]", "exclusiveMinimum", 3),
        ({"exclusiveMaximum": 0, "exclusiveMinimum": -0.5}, "[-5e9]", "exclusiveMinimum", 4),
        ({"type": "integer", "multipleOf": 7, "maximum": 20}, "[8]", "multipleOf", 1),
        ({"multipleOf": 0.5, "maximum": 2}, "[0.3]", "multipleOf", 3),
        ({"enum": [12, 15]}, "[13]", "enum", 2),
        ({"enum": [12, 15]}, "[1200e]", "syntax", 6),
        ({"const": -2}, "[2]", "const", 1),
        # In branches, too.
        ({"anyOf": [{"maximum": 10, "type": "integer"}, {"type": "integer", "maximum": 90}]}, "[91]", "anyOf", 2),
        ({"oneOf": [{"minimum": 5, "type": "number"}, {"enum": [3]}]}, "[-1]", "oneOf", 1),
        ({"type": "number", "not": {"enum": [3]}}, "[3]", "not", 2),
    ],
)
def test_breaks_at(schema: dict[str, Any], text: str, rule: str, offset: int) -> None:
    inner = dict(schema)
    outer = {key: inner.pop(key) for key in ("$schema",) if key in inner}
    known = compile_schema({**outer, "items": inner})
    for data in (text.encode(), text.encode()[: offset + 1]):
        _, _, violation, _ = encode(known, data)
        assert (violation.rule, violation.offset_bytes) == (rule, offset)
        assert encode_slowly(known, data)[2] == violation
    assert encode(known, text.encode()[:offset])[2] is None


def test_huge_exponents_take_no_time() -> None:
    known = compile_schema({"items": {"multipleOf": 3, "minimum": 2, "maximum": 10}})
    _, _, violation, _ = encode(known, b"[3e-0" + b"9" * 200)
    assert violation.offset_bytes == 5
    assert encode(known, b"[3e" + b"0" * 200)[2] is None
