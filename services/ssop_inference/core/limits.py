"""Limits that the engine adds to a schema so that every value ends.

A model that is held to a grammar may still write digits, characters, items or keys without end. Where the schema
leaves that open, a limit is added to the schema that the grammar is made from, and announced; the codec judges by
the schema as it was given.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Schema = Any
"""A JSON Schema as `json.loads` gives it: a dict or a bool."""

_SELF_BOUNDED_FORMATS: Final = frozenset({"date", "uuid", "ipv4"})
_COMPOSING: Final = ("$ref", "allOf", "anyOf", "oneOf")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What is added where a schema says nothing; each is at least as wide as the schema's own lower bound."""

    max_string_chars: int = 512
    """Characters of a string."""
    max_array_items: int = 64
    """Items of an array."""
    max_object_keys: int = 64
    """Keys of a map, on top of its named properties."""
    number_fraction_digits: int = 6
    """Digits after the point of a number."""
    number_magnitude: int = 10**15
    """Largest absolute value of a number: doubles hold every integer up to there."""


@dataclass(slots=True)
class _Walk:
    limits: EngineLimits
    added: list[str] = field(default_factory=list)

    def note(self, keyword: str, value: object, pointer: str) -> None:
        shown = json.dumps(value)
        self.added.append(f"{keyword}={shown} at {pointer or '/'}")


def add_limits(schema: Schema, limits: EngineLimits) -> tuple[Schema, tuple[str, ...]]:
    """The schema with limits, and what was added, such as `maxLength=512 at /summary`.

    Pointers are those of the document, with `*` for any item or key; inside of definitions they begin with the
    definition, as in `#/$defs/Node/name`.
    """
    walk = _Walk(limits)
    limited = _limit(schema, "", frozenset(), walk)
    return limited, tuple(dict.fromkeys(walk.added))


def _limit(schema: Schema, pointer: str, held: frozenset[str], walk: _Walk) -> Schema:
    """`held` are keywords that a schema around this one sets for the same value."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    _descend(result, pointer, held, walk)
    if "enum" in schema or "const" in schema:
        return result
    known = held | schema.keys()
    types = _types(schema)
    if "string" in types:
        _limit_string(result, known, pointer, walk)
    if types & {"number", "integer"}:
        _limit_number(result, types, known, pointer, walk)
    if "array" in types:
        _limit_array(result, known, pointer, walk)
    if "object" in types:
        _limit_object(result, known, pointer, walk)
    return result


def _descend(result: dict[str, Any], pointer: str, held: frozenset[str], walk: _Walk) -> None:
    for keyword in ("$defs", "definitions"):
        if isinstance(result.get(keyword), Mapping):
            result[keyword] = {
                name: _limit(inner, f"#/{keyword}/{_escape(name)}", frozenset(), walk)
                for name, inner in result[keyword].items()
            }
    if isinstance(result.get("properties"), Mapping):
        result["properties"] = {
            name: _limit(inner, f"{pointer}/{_escape(name)}", frozenset(), walk)
            for name, inner in result["properties"].items()
        }
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), Mapping):
            result[keyword] = _limit(result[keyword], f"{pointer}/*", frozenset(), walk)
    if isinstance(result.get("prefixItems"), list):
        result["prefixItems"] = [
            _limit(inner, f"{pointer}/{n}", frozenset(), walk) for n, inner in enumerate(result["prefixItems"])
        ]
    around = held | result.keys()
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(result.get(keyword), list):
            result[keyword] = [_limit(inner, pointer, around, walk) for inner in result[keyword]]


def _limit_string(result: dict[str, Any], known: frozenset[str], pointer: str, walk: _Walk) -> None:
    if "maxLength" in known or result.get("format") in _SELF_BOUNDED_FORMATS:
        return
    result["maxLength"] = max(walk.limits.max_string_chars, result.get("minLength", 0))
    walk.note("maxLength", result["maxLength"], pointer)


def _limit_number(
    result: dict[str, Any], types: frozenset[str], known: frozenset[str], pointer: str, walk: _Walk
) -> None:
    magnitude = walk.limits.number_magnitude
    lower = result.get("minimum", result.get("exclusiveMinimum", 0))
    upper = result.get("maximum", result.get("exclusiveMaximum", 0))
    if not known & {"maximum", "exclusiveMaximum"} and lower < magnitude:
        result["maximum"] = magnitude
        walk.note("maximum", magnitude, pointer)
    if not known & {"minimum", "exclusiveMinimum"} and upper > -magnitude:
        result["minimum"] = -magnitude
        walk.note("minimum", -magnitude, pointer)
    if "number" in types and "multipleOf" not in known:
        result["multipleOf"] = float(f"1e-{walk.limits.number_fraction_digits}")
        walk.note("multipleOf", result["multipleOf"], pointer)


def _limit_array(result: dict[str, Any], known: frozenset[str], pointer: str, walk: _Walk) -> None:
    is_closed = "prefixItems" in result and result.get("items") is False
    if "maxItems" in known or is_closed:
        return
    needed = max(result.get("minItems", 0), len(result.get("prefixItems", ())))
    result["maxItems"] = max(walk.limits.max_array_items, needed)
    walk.note("maxItems", result["maxItems"], pointer)


def _limit_object(result: dict[str, Any], known: frozenset[str], pointer: str, walk: _Walk) -> None:
    if known & set(_COMPOSING) or known & {"patternProperties", "maxProperties"}:
        # Keys may be named by another schema for the same value, so closing this one could leave no document.
        return
    properties = result.get("properties", {})
    required = set(result.get("required", ()))
    is_open = result.get("additionalProperties", True) is not False
    if "additionalProperties" not in known and properties and required <= properties.keys():
        if result.get("minProperties", 0) <= len(properties):
            result["additionalProperties"] = False
            walk.note("additionalProperties", False, pointer)
    elif is_open and required >= properties.keys():
        # llguidance counts keys only where every named property is required.
        keys = max(walk.limits.max_object_keys + len(required), result.get("minProperties", 0))
        result["maxProperties"] = keys
        walk.note("maxProperties", keys, pointer)


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type", ())
    return frozenset((declared,) if isinstance(declared, str) else declared)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
