"""Schemas and documents for the codec's tests, made by hypothesis, and small ways to run an encoder."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ssop_codec import Decoder, Encoder, Frame, Schema
from ssop_codec import _encoder_py as twin

RELAXED = settings(
    deadline=None,
    # A sanitized build is an order of magnitude slower.
    max_examples=25 if "libasan" in os.environ.get("LD_PRELOAD", "") else 100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
KEYS = ("a", "ab", "abc", "b", "naïve", "x/y~z", "", "键")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = (
    st.integers(-20, 20)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from((0.5, -0.0, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 1e300, 5e-324, 0.1))
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | TEXTS, inner, max_size=4),
    max_leaves=12,
)


PATTERNS: dict[str, st.SearchStrategy[str]] = {
    "^[a-z]+$": st.text("az", min_size=1, max_size=8),
    "^[é-ó€\\u{1F600}-\\u{1F60F}]{2,4}$": st.text("éó€😀😏", min_size=2, max_size=4),
    "b+c": st.text("abc", max_size=8),
    "^(?!x)[a-zé]*$": st.text("axé", max_size=6),
    "(ab|a-)+$": st.text("ab-", max_size=8),
    "^[^\\u0100-\\u{10FFFF}]*$": st.text(st.characters(codec="utf-8", max_codepoint=0x120), max_size=4),
    "[^\\s\\S]": st.just(""),
    "": st.text(max_size=4),
}
"""Patterns, and texts that mostly match."""


def _optional(draw: Any, schema: dict[str, Any], keyword: str, values: st.SearchStrategy[Any]) -> None:
    if draw(st.integers(0, 3)) == 0:
        schema[keyword] = draw(values)


@st.composite
def string_schemas(draw: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    kind = draw(st.integers(0, 4))
    if kind == 0:
        schema["enum"] = draw(st.lists(TEXTS | st.sampled_from(("pend", "pending", "done")), min_size=1, max_size=5))
    elif kind == 1:
        schema["format"] = draw(st.sampled_from(("date", "uuid", "email", "date-time", "colour")))
    else:
        _optional(draw, schema, "minLength", st.integers(0, 6))
        _optional(draw, schema, "maxLength", st.integers(0, 12))
        if kind == 2:
            schema["pattern"] = draw(st.sampled_from(list(PATTERNS)))
            _optional(draw, schema, "format", st.sampled_from(("date", "hostname")))
    return schema


@st.composite
def number_schemas(draw: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(("integer", "number", ["integer", "number"])))}
    bounds = st.integers(-20, 20) | st.sampled_from((0.5, -2.5, 1e30, 2**63))
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        _optional(draw, schema, keyword, bounds)
    _optional(draw, schema, "multipleOf", st.sampled_from((1, 2, 5, 0.5, 0.25)))
    return schema


@st.composite
def object_schemas(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    properties = draw(st.dictionaries(st.sampled_from(KEYS), inner, max_size=4))
    if properties or draw(st.booleans()):
        schema["properties"] = properties
    _optional(draw, schema, "required", st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    _optional(draw, schema, "additionalProperties", st.booleans() | inner)
    _optional(draw, schema, "minProperties", st.integers(0, 2))
    _optional(draw, schema, "maxProperties", st.integers(0, 4))
    return schema


@st.composite
def array_schemas(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    _optional(draw, schema, "prefixItems", st.lists(inner, min_size=1, max_size=2))
    if draw(st.booleans()):
        schema["items"] = draw(st.booleans() | inner)
    _optional(draw, schema, "minItems", st.integers(0, 2))
    _optional(draw, schema, "maxItems", st.integers(0, 3))
    return schema


@st.composite
def unions(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Branches of types that the first byte tells apart."""
    makers: list[st.SearchStrategy[Any]] = [
        string_schemas(),
        number_schemas(),
        object_schemas(inner),
        array_schemas(inner),
        st.just({"type": "null"}),
        st.just({"type": "boolean"}),
    ]
    chosen = draw(st.lists(st.sampled_from(range(len(makers))), min_size=1, max_size=3, unique=True))
    return {draw(st.sampled_from(("anyOf", "oneOf"))): [draw(makers[i]) for i in chosen]}


LEAVES = (
    string_schemas()
    | number_schemas()
    | st.sampled_from(
        (
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["string", "null"]},
            {"type": ["integer", "boolean"]},
            {"enum": [1, "x", None, True, 2.5]},
            {"const": "fixed"},
            {"const": True},
            {"enum": [1, 10, 100, 1e2]},
            {},
            True,
            False,
        )
    )
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: object_schemas(inner) | array_schemas(inner) | unions(inner), max_leaves=8
)
TREE: dict[str, Any] = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/node"}},
                "any": {},
            },
            "required": ["v"],
        }
    },
    "$ref": "#/$defs/node",
}


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values that mostly keep the schema."""
    if schema is True or schema == {} or schema is False:
        return VALUES
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return st.one_of([fitting(branch) for branch in schema[keyword]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    makers: list[st.SearchStrategy[Any]] = []
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for name in types:
        if name == "string":
            texts = {"date": "2024-02-29", "email": "a@b.example", "date-time": "2024-01-01T00:00:00Z"}
            texts["uuid"] = "123e4567-e89b-12d3-a456-426614174000"
            known = texts.get(schema.get("format", ""))
            if "pattern" in schema:
                makers.append(PATTERNS[schema["pattern"]])
            makers.append(st.just(known) | TEXTS if known else TEXTS)
        elif name == "integer":
            makers.append(st.integers(-20, 20) | st.integers(-(2**70), 2**70))
        elif name == "number":
            makers.append(NUMBERS)
        elif name == "boolean":
            makers.append(st.booleans())
        elif name == "null":
            makers.append(st.none())
        elif name == "object":
            makers.append(_fitting_object(schema))
        else:
            makers.append(_fitting_array(schema))
    return st.one_of(makers)


def _fitting_object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    fixed = {key: fitting(properties.get(key, True)) for key in required}
    optional = {key: fitting(value) for key, value in properties.items() if key not in fixed}
    named: st.SearchStrategy[Any] = st.fixed_dictionaries(fixed, optional=optional)
    additional = schema.get("additionalProperties", True)
    if additional is False:
        return named
    extra = st.dictionaries(TEXTS, fitting(additional), max_size=2)
    return st.builds(lambda a, b: {**b, **a}, named, extra)


def _fitting_array(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    prefix = [fitting(item) for item in schema.get("prefixItems", ())]
    rest = fitting(schema.get("items", True))
    if not prefix:
        return st.lists(rest, max_size=4)
    return st.builds(lambda a, b: [*a, *b], st.tuples(*prefix), st.lists(rest, max_size=2))


@st.composite
def texts_of(draw: Any, value: Any) -> bytes:
    """JSON text of a value, in one of its spellings."""
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from((None, 2))),
        separators=draw(st.sampled_from(((",", ":"), (", ", ": ")))),
    )
    return text.encode()


@st.composite
def broken_texts(draw: Any, value: Any) -> bytes:
    """The text with bytes changed, lost or added."""
    data = bytearray(draw(texts_of(value)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.integers(0, 3))
        byte = draw(st.sampled_from(b'"\\{}[],:0123456789.eE+-tfnu \xf0\x9f\x00\xed\xa0') | st.integers(0, 255))
        if kind == 0 and data:
            data[at] = byte
        elif kind == 1 and data:
            del data[at]
        elif kind == 2:
            data.insert(at, byte)
        else:
            del data[at:]
    return bytes(data)


Made = tuple[list[bytes], int, Any, list[tuple[int, int, int]]]


def run(
    make: Callable[..., Any], schema: Schema | None, pieces: Sequence[bytes], *, flush: bool = False, **options: Any
) -> Made:
    """Chunks, verdict, violation and spans of a document given in pieces."""
    encoder = make(schema, track_spans=True, **options)
    chunks: list[bytes] = []
    for piece in pieces:
        encoder.feed(piece)
        chunks += encoder.drain(flush)
    encoder.finish(input_tokens=3, output_tokens=300)
    chunks += encoder.drain(True)
    return chunks, encoder.verdict, encoder.violation, encoder.take_spans()


def encode(schema: Schema | None, data: bytes, **options: Any) -> Made:
    """What the encoder makes of a whole document."""
    return run(Encoder, schema, [data], **options)


def encode_slowly(schema: Schema | None, data: bytes, **options: Any) -> Made:
    """What the twin makes of it."""
    return run(twin.Encoder, schema, [data], **options)


def decode(chunks: Sequence[bytes]) -> tuple[Decoder, list[Frame]]:
    """The decoder after all chunks, and their frames."""
    decoder = Decoder()
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return decoder, frames


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data cut at the places, in any order, taken modulo its length."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
