"""The grammar of the rest of a document."""

import json
from collections.abc import Iterator
from typing import Any

import llguidance
import pytest

from helpers.beginnings import TREE, TREE_DOCUMENT, cut
from ssop_inference.core.beginning import Beginning, read_beginning
from ssop_inference.core.constraint import choose_constraint
from ssop_inference.core.limits import EngineLimits
from ssop_inference.core.remainder import UnfinishableError, write_remainder
from ssop_inference.gate import SchemaGate

TOKENIZER = llguidance.LLTokenizer("byte")
GATE = SchemaGate()


def beginnings(schema: Any, text: str) -> Iterator[Beginning]:
    for request in cut(schema, text):
        beginning = read_beginning(request.chunk, request.next_seq)
        if not beginning.is_whole:
            yield beginning


def last_beginning(schema: Any, text: str) -> Beginning:
    """What is final once the text has come so far."""
    *_, last = beginnings(schema, text)
    return last


def takes(schema: Any, beginning: Beginning, rest: str) -> bool:
    """Whether the grammar lets a document end so."""
    constraint = choose_constraint(schema, GATE, EngineLimits())
    grammar = write_remainder(constraint.schema, beginning)
    assert GATE.try_grammar(grammar) == ""
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    matcher.consume_tokens(list(rest.encode()))
    return bool(matcher.is_accepting() and not matcher.is_error())


def object_of(required: tuple[str, ...] = ("a", "c"), **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in "abcd"},
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def test_rest_of_a_document_is_taken_after_every_frame() -> None:
    text = json.dumps(TREE_DOCUMENT, ensure_ascii=False)
    for beginning in beginnings(TREE, text):
        assert takes(TREE, beginning, text[len(beginning.text) :]), beginning.text


@pytest.mark.parametrize(
    ("rest", "is_taken"),
    [
        (', "c": 2}', True),
        (', "b": 2, "c": 3, "d": 4}', True),
        ("}", False),
        (', "a": 2, "c": 3}', False),
        ('5, "c": 3}', False),
        (', "c": "x"}', False),
    ],
    ids=["required", "optional too", "required is missing", "sent already", "more digits", "wrong type"],
)
def test_object_goes_on_with_what_is_missing(rest: str, *, is_taken: bool) -> None:
    beginning = last_beginning(object_of(), '{"a": 1, ')
    assert takes(object_of(), beginning, rest) is is_taken


def test_optional_property_that_was_passed_over_is_not_offered_again() -> None:
    beginning = last_beginning(object_of(), '{"a": 1, "c": 2, ')
    assert not takes(object_of(), beginning, ', "b": 2}')


@pytest.mark.parametrize(("rest", "is_taken"), [("]", False), (", 3]", True), (", 3, 4, 5]", False)])
def test_array_keeps_its_counts(rest: str, *, is_taken: bool) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4}
    assert takes(schema, last_beginning(schema, "[1, 2, "), rest) is is_taken


@pytest.mark.parametrize(("rest", "is_taken"), [("y" * 30 + '"}', True), ("y" * 31 + '"}', False), ('\\n"}', True)])
def test_string_in_parts_keeps_its_length(rest: str, *, is_taken: bool) -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string", "maxLength": 0}}, "required": ["s"]}
    schema["properties"]["s"]["maxLength"] = 1000  # type: ignore[index]
    beginning = last_beginning(schema, '{"s": "' + "x" * 990)
    assert beginning.open_string is not None
    schema["properties"]["s"]["maxLength"] = len(beginning.open_string) + 30  # type: ignore[index]
    assert takes(schema, beginning, rest) is is_taken


def test_map_takes_no_key_twice() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    beginning = last_beginning(schema, '{"a": 1, ')
    assert takes(schema, beginning, ', "b": 2}')
    assert not takes(schema, beginning, ', "a": 2}')


def pet(kind: str, **properties: Any) -> dict[str, Any]:
    names = {"kind": {"const": kind}, **properties}
    return {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}


@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_branch_of_a_union_is_known_by_what_its_members_say(union: str) -> None:
    dog = pet("dog", tricks={"type": "array", "items": {"type": "string"}})
    schema = {
        "type": "array",
        "items": {union: [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        "$defs": {"Cat": pet("cat", lives={"type": "integer"}), "Dog": dog},
    }
    text = '[{"kind": "dog", "tricks": ["sit"]}, {"kind": "cat", "lives": 9}]'
    for beginning in beginnings(schema, text):
        assert takes(schema, beginning, text[len(beginning.text) :]), beginning.text
    assert not takes(schema, last_beginning(schema, '[{"kind": "dog", '), ', "lives": 9}]')


def test_schema_that_refers_to_its_own_parts_is_moved_whole() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert takes(schema, last_beginning(schema, '{"a": 1, '), ', "b": 2}')


def test_grammar_that_would_be_huge_is_refused() -> None:
    big = {"type": "integer", "description": "words " * 4_000}
    # Each definition is carried by every value that needs it.
    properties = {
        f"p{number}": {"type": "array", "items": {"$ref": "#/$defs/Big"}, "maxItems": 60 - number}
        for number in range(60)
    }
    schema = {"type": "object", "properties": properties, "required": list(properties), "$defs": {"Big": big}}
    beginning = last_beginning(schema, '{"p0": [], ')
    with pytest.raises(UnfinishableError, match="too large"):
        write_remainder(schema, beginning)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"anyOf": [object_of(), object_of(("b",))]}, '{"a": 1, '),
        (object_of(patternProperties={"^x": {}}), '{"a": 1, '),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, '[1, "a"'),
        ({"type": "string", "pattern": "^x+$"}, '"' + "x" * 500),
    ],
    ids=["union", "patternProperties", "prefixItems", "pattern"],
)
def test_what_has_no_grammar_is_named(schema: Any, text: str) -> None:
    beginning = last_beginning(schema, text)
    with pytest.raises(UnfinishableError, match="open"):
        write_remainder(schema, beginning)
