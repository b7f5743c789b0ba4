"""The keywords of JSON Schema, by what the compiler does with them, for both dialects."""

from __future__ import annotations

from typing import Any, Final, Literal

from .errors import SchemaError

Dialect = Literal["2020-12", "draft-07", "draft-04"]

SILENT: Final = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "$comment",
        "$anchor",
        "$dynamicAnchor",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$defs",
        "definitions",
    )
)
"""Says nothing about values; taken without a word."""

REFUSED: Final = frozenset(
    ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary")
)
"""Says something about values that is not judged here."""

NOT_BEFORE_2019: Final = frozenset(
    (*REFUSED, "prefixItems", "dependentRequired", "dependentSchemas", "minContains", "maxContains")
)
"""No keywords in draft-07: annotations there."""

NOT_BEFORE_DRAFT_06: Final = NOT_BEFORE_2019 | {"const", "contains", "propertyNames", "if", "then", "else"}
"""No keywords in draft-04."""

IN_PLACE: Final = ("$ref", "allOf", "anyOf", "oneOf")
"""Applicators to the same value that become part of a node's own facts, where they can."""

PLAIN: Final = frozenset(
    (
        "type",
        "enum",
        "const",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "format",
        "pattern",
        "pattern",
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "prefixItems",
        "items",
        "additionalItems",
        "minItems",
        "maxItems",
    )
)
"""Judged by the rules of a node."""

ABOUT_STRINGS: Final = frozenset(("minLength", "maxLength", "format", "pattern"))
ABOUT_NUMBERS: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
ABOUT_OBJECTS: Final = frozenset(
    ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties")
)
ABOUT_ARRAYS: Final = frozenset(("prefixItems", "items", "additionalItems", "minItems", "maxItems"))
"""Most schemas say nothing about most types."""

OBJECT, ARRAY, ANY = 32, 64, 127
JUDGED: Final = {
    "patternProperties": OBJECT,
    "propertyNames": OBJECT,
    "dependentRequired": OBJECT,
    "dependentSchemas": OBJECT,
    "dependencies": OBJECT,
    "contains": ARRAY,
    "uniqueItems": ARRAY,
    "not": ANY,
    "if": ANY,
}
"""Judged beside the rules, and the types that they speak of."""
COMPANIONS: Final = {
    "patternProperties": ("properties", "additionalProperties"),
    "contains": ("minContains", "maxContains"),
    "if": ("then", "else"),
}
"""Keywords that count only together with the one they stand beside."""

KNOWN: Final = PLAIN | set(JUDGED) | set(IN_PLACE) | {k for ks in COMPANIONS.values() for k in ks}

GROUPED: Final = frozenset((*IN_PLACE, "not", "if", "dependentSchemas", "dependencies"))
"""Join schemas of the same value."""

LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
SINGLE: Final = (
    "additionalProperties",
    "additionalItems",
    "items",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
"""Where schemas stand in a schema: in lists, in maps, alone."""


def dialect_of(schema: Any) -> Dialect:
    """What `$schema` says: draft-03 is read as draft-04, draft-06 as draft-07, all else as 2020-12."""
    said = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(said, str):
        return "2020-12"
    if "draft-03" in said or "draft-04" in said:
        return "draft-04"
    return "draft-07" if "draft-06" in said or "draft-07" in said else "2020-12"


_UNKNOWN: Final[dict[Dialect, frozenset[str]]] = {
    "2020-12": frozenset(),
    "draft-07": NOT_BEFORE_2019,
    "draft-04": NOT_BEFORE_DRAFT_06,
}


_COMMON: Final = {dialect: (SILENT | KNOWN) - unknown for dialect, unknown in _UNKNOWN.items()}
"""What needs no second look."""


def unknown_to(dialect: Dialect) -> frozenset[str]:
    """Keywords of later drafts."""
    return _UNKNOWN[dialect]


def has_bare_reference(schema: dict[str, Any], dialect: Dialect) -> bool:
    """Before 2019 nothing beside `$ref` counts."""
    return dialect != "2020-12" and "$ref" in schema


def annotations_of(schema: dict[str, Any], pointer: str, dialect: Dialect) -> list[str]:
    """Names of the keywords that are taken as annotations. Raises SchemaError for one that is refused."""
    found: list[str] = []
    bare = has_bare_reference(schema, dialect)
    if not bare and schema.keys() <= _COMMON[dialect]:
        return found
    unknown = unknown_to(dialect)
    for keyword in schema:
        if keyword in SILENT or (keyword in KNOWN and not bare) or keyword == "$ref":
            if keyword in unknown:
                found.append(keyword)
            continue
        if keyword in REFUSED and dialect == "2020-12":
            raise SchemaError(f"{pointer}/{keyword}", keyword, "is not supported")
        found.append(keyword)
    return found


def effective(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The schema without what its dialect does not know, in words that all dialects share."""
    if dialect == "2020-12":
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    unknown = unknown_to(dialect)
    if dialect == "draft-07" and unknown.isdisjoint(schema):
        return schema
    kept = {key: value for key, value in schema.items() if key not in unknown}
    if dialect == "draft-04":
        for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            # There it says of the bound beside it whether it is one itself.
            if isinstance(kept.get(exclusive), bool) and kept.pop(exclusive) and bound in kept:
                kept[exclusive] = kept.pop(bound)
    return kept
