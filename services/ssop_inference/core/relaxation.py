"""A weaker schema for an engine that lacks some keywords.

Each step turns a schema into one that accepts everything the first one does, so the codec alone decides on what was
left out.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# The engine's words for what it lacks (llguidance 1.x).
_UNIMPLEMENTED: Final = re.compile(r"Unimplemented keys: (\[.*?\])")

# Keywords whose absence would change the meaning of a neighbour to something narrower; they go together.
_SHIELDS: Final[Mapping[str, frozenset[str]]] = {
    "patternProperties": frozenset({"additionalProperties", "unevaluatedProperties"}),
    "properties": frozenset({"additionalProperties", "unevaluatedProperties"}),
    "prefixItems": frozenset({"items", "unevaluatedItems"}),
    "contains": frozenset({"minContains", "maxContains", "unevaluatedItems"}),
    "if": frozenset({"then", "else", "unevaluatedProperties", "unevaluatedItems"}),
    "then": frozenset({"if", "else", "unevaluatedProperties", "unevaluatedItems"}),
    "else": frozenset({"if", "then", "unevaluatedProperties", "unevaluatedItems"}),
    "dependentSchemas": frozenset({"unevaluatedProperties"}),
}
# Without these there is no schema to speak of, or names would dangle.
_KEPT: Final = frozenset({"$ref", "$defs", "definitions", "type", "$schema", "$id", "$anchor"})
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "propertyNames", "contains", "unevaluatedProperties")


@dataclass(frozen=True, slots=True)
class Relaxation:
    """What to leave out: keywords, and whether `oneOf` becomes `anyOf`."""

    keywords: frozenset[str]
    is_one_of_opened: bool = False

    def __str__(self) -> str:
        left_out = sorted(self.keywords) + (["oneOf (read as anyOf)"] if self.is_one_of_opened else [])
        return ", ".join(left_out)


_REFUSALS: Final = (
    ("Unknown format: ", Relaxation(frozenset({"format"}))),
    ("oneOf constraints are not supported", Relaxation(frozenset(), is_one_of_opened=True)),
    ("min/maxProperties only supported", Relaxation(frozenset({"minProperties", "maxProperties"}))),
    ("regex", Relaxation(frozenset({"pattern", "patternProperties"}))),
)
"""What a refusal says, and what to leave out then."""


def read_refusal(text: str) -> Relaxation | None:
    """What the engine's refusal asks to leave out; None when it asks for nothing that could be."""
    if match := _UNIMPLEMENTED.search(text):
        try:
            keys = frozenset(json.loads(match[1]))
        except ValueError:
            return None
        return None if keys & _KEPT else Relaxation(keys)
    return next((relaxation for words, relaxation in _REFUSALS if words in text), None)


def child_schemas(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas directly inside of a schema, definitions included."""
    found = [schema[key] for key in _SCHEMAS if key in schema]
    for key in _SCHEMA_LISTS:
        found += schema[key] if isinstance(schema.get(key), list) else ()
    for key in _SCHEMA_MAPS:
        found += schema[key].values() if isinstance(schema.get(key), Mapping) else ()
    return found


def map_schemas(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A schema with each schema directly inside of it changed."""
    if not isinstance(schema, Mapping):
        return schema
    result = dict(schema)
    for key in _SCHEMAS:
        if key in result:
            result[key] = change(result[key])
    for key in _SCHEMA_LISTS:
        if isinstance(result.get(key), list):
            result[key] = [change(inner) for inner in result[key]]
    for key in _SCHEMA_MAPS:
        if isinstance(result.get(key), Mapping):
            result[key] = {name: change(inner) for name, inner in result[key].items()}
    return result


def relax(schema: Any, relaxation: Relaxation) -> Any:
    """The schema without what the relaxation names, wherever that stands. Accepts all that the schema accepts."""
    return _relax(schema, relaxation)[0]


def _relax(schema: Any, relaxation: Relaxation) -> tuple[Any, bool]:
    """The weaker schema, and whether anything was changed in it."""
    if not isinstance(schema, Mapping):
        return schema, False
    gone = set(relaxation.keywords & schema.keys())
    for keyword in tuple(gone):
        gone |= _SHIELDS.get(keyword, frozenset()) & schema.keys()
    result = {key: value for key, value in schema.items() if key not in gone}
    is_changed = bool(gone)
    for key in _SCHEMA_MAPS:
        if isinstance(result.get(key), Mapping):
            pairs = {name: _relax(inner, relaxation) for name, inner in result[key].items()}
            result[key] = {name: inner for name, (inner, _) in pairs.items()}
            is_changed |= any(changed for _, changed in pairs.values())
    for key in _SCHEMAS:
        if key in result:
            result[key], changed = _relax(result[key], relaxation)
            is_changed |= changed
            if changed and key == "contains":
                # More items match a wider schema, so the count of matches may no longer be bounded.
                result.pop("maxContains", None)
    for key in _SCHEMA_LISTS:
        if isinstance(result.get(key), list):
            items = [_relax(inner, relaxation) for inner in result[key]]
            result[key] = [inner for inner, _ in items]
            is_changed |= any(changed for _, changed in items)
    return _open_one_of(result, relaxation, is_changed), is_changed


def _open_one_of(schema: dict[str, Any], relaxation: Relaxation, is_changed: bool) -> dict[str, Any]:
    """A widened branch of `oneOf` may accept what another one does, and `oneOf` would then refuse it."""
    if "oneOf" not in schema or not (relaxation.is_one_of_opened or is_changed):
        return schema
    result = {key: value for key, value in schema.items() if key != "oneOf"}
    if "anyOf" not in result:
        result["anyOf"] = schema["oneOf"]
    else:
        result["allOf"] = [*result.get("allOf", ()), {"anyOf": schema["oneOf"]}]
    return result
