"""Says in words what a violated rule expected. Never holds generated content, only words of the schema."""

from __future__ import annotations

from typing import Final

from .facts import type_names
from .number import Number
from .rules import Rule

_MAX_CHARS = 200

DETAILS: Final = (
    "",
    "a value",
    "a value or the end of the array",
    "a key in double quotes",
    "a key in double quotes or the end of the object",
    "a colon",
    "a comma or the end of the object",
    "a comma or the end of the array",
    "a digit",
    "true, false or null",
    "an escape that JSON knows",
    "four hexadecimal digits",
    "the second half of a surrogate pair",
    "no control character in a string",
    "no second half of a surrogate pair by itself",
    "within max_depth",
    "within max_document_bytes",
    "within max_whitespace_run_bytes",
    "within max_key_bytes",
    "within max_number_bytes",
    "within max_format_bytes",
    "within max_object_keys",
    "a frame that fits stream_buffer_size",
    "the end of the number",
    "within max_live_checks",
    "within max_held_bytes",
    "within max_unique_items",
    "a pattern that needs fewer states",
)
"""What `syntax` and `limit` expect; the encoders name an entry by its position."""


_JUDGED: Final = {
    "anyOf": "what one branch at least allows",
    "oneOf": "what exactly one branch allows",
    "allOf": "what all branches allow",
    "$ref": "no value here",
    "not": "what the schema under not does not allow",
    "if": "what then or else allows",
    "then": "what the schema under then allows",
    "else": "what the schema under else allows",
    "dependentSchemas": "what the schema of a property that is there allows",
    "dependencies": "what the schema of a property that is there allows",
    "dependentRequired": "the properties that others need",
    "propertyNames": "a name that the schema allows",
    "uniqueItems": "no item twice",
    "contains": "an item that the schema under contains allows",
    "minContains": "more items that the schema under contains allows",
    "maxContains": "fewer items that the schema under contains allows",
}


def expected(rule_name: str, rule: Rule, structure: Rule, missing: tuple[str, ...] = ()) -> str:
    """`rule` is that of the value, `structure` that of the container where its rules are elsewhere."""
    text = _expected(rule_name, rule, structure, missing)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def _expected(name: str, rule: Rule, structure: Rule, missing: tuple[str, ...]) -> str:
    fixed = {
        "additionalProperties": "only the properties that the schema names",
        "items": "no item at this position",
        "duplicateKey": "each key once",
        "trailing": "nothing after the document",
        "utf8": "valid UTF-8",
        "multipleOf": f"a multiple of {_text(rule.multiple_of)}",
        "minimum": f"at least {_text(rule.minimum)}",
        "maximum": f"at most {_text(rule.maximum)}",
        "exclusiveMinimum": f"more than {_text(rule.exclusive_minimum)}",
        "exclusiveMaximum": f"less than {_text(rule.exclusive_maximum)}",
        "minLength": f"at least {rule.min_length} characters",
        "maxLength": f"at most {rule.max_length} characters",
        "format": f"the format {rule.string_format}",
        "pattern": f"a text that matches {rule.pattern.text if rule.pattern else ''}",
        "minItems": f"at least {structure.min_items} items",
        "maxItems": f"at most {structure.max_items} items",
        "minProperties": f"at least {structure.min_properties} properties",
        "maxProperties": f"at most {structure.max_properties} properties",
        "required": "the properties " + ", ".join(missing),
        **_JUDGED,
    }
    if name in fixed:
        return fixed[name]
    if name == "type":
        return " or ".join(type_names(rule.declared_types)) or "no value here"
    return _members(rule)


def _members(rule: Rule) -> str:
    members = [member.decode() for member in rule.enum_strings or ()]
    members += [_text(number) for number in rule.enum_numbers or ()]
    if rule.types & 8:
        members += ["true" if value else "false" for value in sorted(rule.bools)]
    if rule.types & 16:
        members.append("null")
    return "one of: " + ", ".join(members) if members else "no value here"


def _text(number: Number | None) -> str:
    if number is None:
        return ""
    coefficient, exponent = number
    if 0 <= exponent <= 15:
        return str(coefficient * 10**exponent)
    if -15 <= exponent < 0:
        digits = str(abs(coefficient)).rjust(-exponent + 1, "0")
        return ("-" if coefficient < 0 else "") + digits[:exponent] + "." + digits[exponent:]
    return f"{coefficient}e{exponent}"
