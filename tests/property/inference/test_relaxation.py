"""A relaxed schema accepts all that the schema accepts; a limited one nothing that it refuses."""

from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from ssop_inference.core.limits import EngineLimits, add_limits
from ssop_inference.core.prompt import ControlTokens
from ssop_inference.core.relaxation import Relaxation, relax

KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from(
    [
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 1},
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"type": "number", "multipleOf": 2},
        {"type": "number"},
        {"type": "null"},
        {"const": "x"},
        {},
        True,
    ]
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(KEYS, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "additionalProperties": st.one_of(st.just(False), inner),
            "required": st.lists(KEYS, unique=True, max_size=2),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(0, 3),
            "propertyNames": st.just({"pattern": "^[ab]"}),
            "dependentRequired": st.just({"a": ["b"]}),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "items": st.one_of(st.just(False), inner),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "contains": inner,
            "maxContains": st.integers(1, 2),
        },
    )
    branches = st.lists(inner, min_size=1, max_size=3)
    unions = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
        lambda keyword: branches.map(lambda chosen: {keyword: chosen})
    )
    others = st.one_of(
        inner.map(lambda s: {"not": s}), st.tuples(inner, inner).map(lambda p: {"if": p[0], "then": p[1]})
    )
    return st.one_of(objects, arrays, unions, others)


SCHEMAS = st.recursive(LEAVES, _containers, max_leaves=6)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-2, 4), st.sampled_from(["", "x", "2024-02-29"]), st.sampled_from([0.5, 2.0])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
KEYWORDS = st.frozensets(
    st.sampled_from(
        [
            "format", "not", "if", "uniqueItems", "minProperties", "maxProperties", "patternProperties", "contains",
            "propertyNames", "dependentRequired", "multipleOf", "prefixItems", "minLength",
        ]
    ),
    max_size=5,
)  # fmt: skip


PIECES = st.sampled_from(["<|im_start|>", "<|im_end|>", "<|", "im_", "start", "|>", "<", " ", "x"])


def accepts(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value))


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, VALUES, KEYWORDS, st.booleans())
def test_relaxed_schema_accepts_all_that_the_schema_accepts(
    schema: Any, value: Any, keywords: frozenset[str], is_one_of_opened: bool
) -> None:
    if accepts(schema, value):
        assert accepts(relax(schema, Relaxation(keywords, is_one_of_opened)), value)


@settings(max_examples=300, deadline=None)
@given(LEAVES | _containers(LEAVES), VALUES)
def test_limited_schema_accepts_nothing_that_the_schema_refuses(schema: Any, value: Any) -> None:
    limited, _ = add_limits(schema, EngineLimits(max_string_chars=2, max_array_items=2, max_object_keys=2))
    if "not" not in str(schema) and "oneOf" not in str(schema) and "if" not in str(schema) and accepts(limited, value):
        assert accepts(schema, value)


@given(
    st.lists(st.sampled_from(["<|im_start|>", "<|im_end|>", "<|", "im_", "start", "|>", "<", " ", "x"]), max_size=12)
)
def test_no_control_token_survives_in_content(pieces: list[str]) -> None:
    broken = ControlTokens(["<|im_start|>", "<|im_end|>"]).break_up("".join(pieces))
    assert "<|im_start|>" not in broken
    assert "<|im_end|>" not in broken
    assert broken.replace("\u200b", "") == "".join(pieces)
