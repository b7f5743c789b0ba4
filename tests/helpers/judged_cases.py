"""Schemas with unions, negations and whatever else no single rule says, over a small world of values."""

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "c")
SCALARS: tuple[Any, ...] = (None, True, False, 0, 1, 2, 1.5, -1, 3.0, "", "a", "ab", "abc", "b", "ü")
WORLD: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
"""Values that hit and miss often."""
PATTERNS = ("a", "^a", "b$", "^[a-c]+$", "^.{2}$", "ü")
TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")


def _keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Each keyword and what it may say."""
    small = st.integers(0, 3)
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    branches = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
    return {
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        "enum": st.lists(WORLD, min_size=1, max_size=4),
        "const": WORLD,
        "minimum": small,
        "maximum": small,
        "exclusiveMinimum": small,
        "multipleOf": st.sampled_from((1, 2, 1.5)),
        "minLength": small,
        "maxLength": small,
        "pattern": st.sampled_from(PATTERNS),
        "properties": by_name,
        "required": names,
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, min_size=1, max_size=2),
        "propertyNames": inner,
        "minProperties": small,
        "maxProperties": small,
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, min_size=1, max_size=2),
        "dependentSchemas": by_name,
        "prefixItems": branches,
        "items": inner,
        "minItems": small,
        "maxItems": small,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "minContains": small,
        "maxContains": small,
        "allOf": branches,
        "anyOf": branches,
        "oneOf": branches,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(("#", "#/$defs/x", "#/$defs/y")),
    }


@st.composite
def _schemas(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    keywords = _keywords(inner)
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True))
    return {keyword: draw(keywords[keyword]) for keyword in chosen}


_INNER: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from((True, False, {"type": "string"}, {"type": "integer"}, {"type": "object"}, {"const": "a"}, {})),
    _schemas,
    max_leaves=10,
)


@st.composite
def judged_schemas(draw: Any) -> dict[str, Any]:
    """A schema of any keywords, some of which have no effect, and references to itself."""
    schema: dict[str, Any] = draw(_schemas(_INNER))
    if "#/$defs/" in repr(schema):
        schema["$defs"] = {"x": draw(_INNER), "y": draw(_INNER)}
        if "#/$defs/" in repr(schema["$defs"]):
            schema["$defs"] = {"x": {"properties": {"a": {"$ref": "#/$defs/y"}}}, "y": {"items": {"$ref": "#/$defs/x"}}}
    return schema
