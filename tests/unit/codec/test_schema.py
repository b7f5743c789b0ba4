"""What the schema compiler takes, refuses and says."""

import hashlib
import json
from typing import Any

import pytest

from ssop_codec import ALL_TYPES, FieldStep, FieldType, Limits, SchemaError, compile_schema, text_schema
from ssop_codec.canonical import canonical, number_text

STRING, INTEGER, NUMBER = FieldType.STRING, FieldType.INTEGER, FieldType.NUMBER
NULL, OBJECT = FieldType.NULL, FieldType.OBJECT


def refusal(schema: Any, **options: Any) -> SchemaError:
    """The error that compiling raises."""
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema, **options)
    return caught.value


def test_nodes_are_numbered_depth_first() -> None:
    schema = compile_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"type": "integer"}},
                "b": {"type": "array", "prefixItems": [{"type": "null"}]},
            },
            "additionalProperties": {"type": "string"},
            "required": ["b"],
        }
    )
    table = [(n.node, n.parent, n.step, n.key, n.index, n.types, n.required) for n in schema.nodes]
    assert table == [
        (0, 0, FieldStep.ROOT, "", 0, OBJECT, False),
        (1, 0, FieldStep.PROPERTY, "a", 0, FieldType.ARRAY, False),
        (2, 1, FieldStep.ITEM, "", 0, INTEGER, False),
        (3, 0, FieldStep.PROPERTY, "b", 0, FieldType.ARRAY, True),
        (4, 3, FieldStep.PREFIX_ITEM, "", 0, NULL, False),
        (5, 0, FieldStep.MAP_VALUE, "", 0, STRING, False),
    ]


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "number"}, INTEGER | NUMBER),
        ({"type": "integer"}, INTEGER),
        ({"type": ["string", "null"]}, STRING | NULL),
        ({}, ALL_TYPES),
        (True, ALL_TYPES),
        (False, 0),
        ({"enum": [1, "x", None]}, INTEGER | STRING | NULL),
        ({"enum": [1.5]}, INTEGER | NUMBER),
        ({"type": "string", "enum": ["a", 1]}, STRING),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, STRING | NULL),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}], "type": "null"}, NULL),
        ({"allOf": [{"type": "null"}], "description": "d"}, NULL),
    ],
)
def test_types_of_the_root(schema: Any, types: int) -> None:
    assert compile_schema(schema).nodes[0].types == types


def test_recursion_becomes_a_reference_node() -> None:
    schema = compile_schema(
        {
            "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
            "$ref": "#/$defs/N",
        }
    )
    assert [(n.key, n.ref_node) for n in schema.nodes] == [("", None), ("next", 0)]


def test_optional_recursion_keeps_null_in_its_types() -> None:
    schema = compile_schema({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}})
    assert (schema.nodes[1].types, schema.nodes[1].ref_node) == (OBJECT | NULL, 0)


def test_small_definitions_are_expanded_at_each_use() -> None:
    schema = compile_schema(
        {
            "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/P"}, "b": {"$ref": "#/$defs/P"}},
        }
    )
    assert [n.key for n in schema.nodes] == ["", "a", "x", "b", "x"]


def test_large_definitions_are_expanded_once() -> None:
    large = {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(40)}}
    schema = compile_schema(
        {
            "$defs": {"L": large},
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/L"}, "b": {"$ref": "#/$defs/L"}},
        }
    )
    assert len(schema.nodes) == 43
    assert schema.nodes[42].ref_node == 1


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"pattern": "(?<=a)b"}, "/pattern", "pattern"),
        ({"pattern": 1}, "/pattern", "pattern"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef", "$dynamicRef"),
        ({"unevaluatedProperties": False}, "/unevaluatedProperties", "unevaluatedProperties"),
        ({"not": {"unevaluatedItems": False}}, "/not/unevaluatedItems", "unevaluatedItems"),
        ({"patternProperties": {"(": {}}}, "/patternProperties/(", "pattern"),
        ({"patternProperties": {"(?<=a)b": {}}}, "/patternProperties/(?<=a)b", "pattern"),
        ({"uniqueItems": 1}, "/uniqueItems", "uniqueItems"),
        ({"not": 1}, "/not", "not"),
        ({"not": {"$ref": "#"}}, "/not/$ref", "$ref"),
        ({"if": {"$ref": "#"}, "then": {"$ref": "#"}}, "/if/$ref", "$ref"),
        ({"dependentRequired": {"a": "b"}}, "/dependentRequired/a", "dependentRequired"),
        ({"contains": {}, "minContains": -1}, "/minContains", "minContains"),
        ({"prefixItems": [{}], "items": [{}]}, "/items", "items"),
        ({"$ref": "http://example.org/s"}, "/$ref", "$ref"),
        ({"$ref": "#/$defs/none"}, "/$ref", "$ref"),
        ({"$ref": "#"}, "/$ref", "$ref"),
        ({"$ref": 1}, "/$ref", "$ref"),
        ({"anyOf": []}, "/anyOf", "anyOf"),
        ({"type": "text"}, "/type", "type"),
        ({"type": 1}, "/type", "type"),
        ({"enum": "a"}, "/enum", "enum"),
        ({"minimum": "1"}, "/minimum", "minimum"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum", "exclusiveMinimum"),
        ({"multipleOf": 0}, "/multipleOf", "multipleOf"),
        ({"minLength": -1}, "/minLength", "minLength"),
        ({"maxItems": 1.5}, "/maxItems", "maxItems"),
        ({"properties": []}, "/properties", "properties"),
        ({"required": "a"}, "/required", "required"),
        ({"properties": {"a": 1}}, "/properties/a", "a"),
        ("[1]", "", "schema"),
        ("{", "", "schema"),
        ('{"type":"string","type":"null"}', "", "schema"),
        ('{"minimum":NaN}', "", "schema"),
        ('{"minimum":1e400}', "", "schema"),
        ({"minimum": float("inf")}, "/minimum", "number"),
        ({"title": {1}}, "/title", "value"),
    ],
)
def test_refusal_names_pointer_and_keyword(schema: Any, pointer: str, keyword: str) -> None:
    error = refusal(schema)
    assert (error.pointer, error.keyword) == (pointer, keyword)
    assert error.reason


@pytest.mark.parametrize(
    ("schema", "limits", "cap"),
    [
        ({"description": "x" * 100}, Limits(max_schema_bytes=50), "max_schema_bytes"),
        ('{"description": "' + "x" * 100 + '"}', Limits(max_schema_bytes=50), "max_schema_bytes"),
        ("[" * 100_000, Limits(), "max_depth"),
        ({"properties": {str(i): {} for i in range(5)}}, Limits(max_properties=4), "max_properties"),
        ({"properties": {str(i): {} for i in range(5)}}, Limits(max_nodes=5), "max_nodes"),
        ({"enum": [1, 2, 3]}, Limits(max_enum_values=2), "max_enum_values"),
        ({"enum": ["abc"]}, Limits(max_enum_bytes=2), "max_enum_bytes"),
        ({"items": {"type": "null"}}, Limits(max_schema_steps=1), "max_schema_steps"),
        ({"properties": {"abc": {}}}, Limits(max_key_bytes=2), "max_key_bytes"),
    ],
)
def test_cap_is_named(schema: Any, limits: Limits, cap: str) -> None:
    assert refusal(schema, limits=limits).keyword == cap


def test_union_bomb_is_read_once() -> None:
    defs: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 20} for i in range(30)}
    defs["d30"] = {"type": "string"}
    assert compile_schema({"$defs": defs, "$ref": "#/$defs/d0"}).caps["schema_steps"] < 1000


def test_enum_bomb_ends_at_a_cap() -> None:
    members = {"enum": [f"v{i}" for i in range(1000)]}
    names = {f"k{i}": {"$ref": "#/$defs/e"} for i in range(900)}
    assert refusal({"$defs": {"e": members}, "properties": names}).keyword == "max_table_enum_values"


def test_chain_of_references_ends_at_a_cap() -> None:
    defs: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(80)}
    defs["d80"] = {}
    assert refusal({"$defs": defs, "$ref": "#/$defs/d0"}).keyword == "max_depth"


def test_shared_definitions_do_not_explode() -> None:
    defs: dict[str, Any] = {
        f"d{i}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in ("a", "b")},
        }
        for i in range(40)
    }
    defs["d40"] = {"type": "string"}
    schema = compile_schema({"$defs": defs, "$ref": "#/$defs/d0"})
    assert len(schema.nodes) < 200


def test_deep_schema_is_refused() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"items": deep, "type": "array"}
    assert refusal(deep).keyword == "max_depth"


def test_unknown_format_is_listed_as_annotation() -> None:
    assert compile_schema({"format": "colour"}).annotations == ("format:colour",)


def test_known_format_is_no_annotation() -> None:
    assert compile_schema({"format": "date"}).annotations == ()


def test_formats_are_annotations_where_asked() -> None:
    schema = compile_schema({"format": "date"}, format_assertion=False)
    assert schema.annotations == ("format:date",)


def test_hash_is_of_the_canonical_form() -> None:
    schema = compile_schema('{"type": "string",\n "maxLength": 1e1}')
    assert schema.canonical == b'{"maxLength":10,"type":"string"}'
    assert schema.hash == hashlib.sha256(schema.canonical).digest()


def test_mapping_and_text_have_one_hash() -> None:
    tree = {"type": "number", "minimum": 0.1, "title": "é\u2028"}
    assert compile_schema(tree).hash == compile_schema(json.dumps(tree)).hash


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (333333333.33333329, "333333333.3333333"),
        (4.5, "4.5"),
        (0.002, "0.002"),
        (1e23, "1e+23"),
        (-1.5e300, "-1.5e+300"),
        (5e-324, "5e-324"),
        (2**60, "1152921504606847000"),
    ],
)
def test_numbers_have_the_text_of_rfc_8785(value: float, text: str) -> None:
    assert number_text(value) == text


def test_keys_are_sorted_by_utf16_units() -> None:
    assert canonical({"\ue000": 1, "\U00010000": 2, "€": 3}).decode() == '{"€":3,"𐀀":2,"\ue000":1}'


def test_control_characters_are_escaped_shortly() -> None:
    assert canonical('\x08\n\x1f"\\/\x7f') == b'"\\b\\n\\u001f\\"\\\\/\x7f"'


def test_lone_surrogate_in_a_schema_is_refused() -> None:
    assert refusal('{"title": "\\ud800"}').keyword == "schema"


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        ({"type": "integer"}, 1024),
        ({"type": "string"}, 1024),
        ({"type": "string", "maxLength": 1000}, 4096),
        ({"type": "string", "maxLength": 10**6}, 16384),
        ({"enum": ["x" * 2000]}, 2048),
    ],
)
def test_auto_buffer_holds_the_fields(schema: Any, size: int) -> None:
    assert compile_schema(schema).auto_buffer_bytes == size


def test_text_schema_is_one_string() -> None:
    schema = text_schema()
    assert schema.is_text
    assert [node.types for node in schema.nodes] == [STRING]


def test_caps_say_what_was_used() -> None:
    caps = compile_schema({"properties": {"a": {"enum": ["x", "yz"]}}}).caps
    assert (caps["nodes"], caps["depth"], caps["properties"]) == (2, 1, 1)
    assert (caps["enum_values"], caps["enum_bytes"]) == (2, 3)


def test_second_of_two_recursive_branches_is_untyped() -> None:
    schema = compile_schema(
        {
            "$defs": {
                "O": {"type": "object", "properties": {"u": {"$ref": "#/$defs/U"}}},
                "A": {"type": "array", "items": {"$ref": "#/$defs/O"}},
                "U": {"anyOf": [{"$ref": "#/$defs/O"}, {"$ref": "#/$defs/A"}]},
            },
            "$ref": "#/$defs/A",
        }
    )
    assert [node.ref_node for node in schema.nodes] == [None, None, 1]


@pytest.mark.parametrize("schema", [{"x/y": 1}, {"nullable": True}, {"properties": {"a": {"example": 1}}}])
def test_unknown_keyword_is_listed_as_annotation(schema: Any) -> None:
    assert len(compile_schema(schema).annotations) == 1


def test_keywords_beside_a_reference_are_annotations_in_draft_07() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"$ref": "#/definitions/d", "minimum": 1}}, "definitions": {"d": {}}}
    assert compile_schema(schema, dialect="draft-07").annotations == ("minimum",)
    assert compile_schema(schema).annotations == ()


def test_recursive_json_value_compiles() -> None:
    """What Pydantic writes for its JsonValue-like aliases."""
    schema = compile_schema(
        {
            "$defs": {
                "J": {
                    "anyOf": [
                        {"type": "array", "items": {"$ref": "#/$defs/J"}},
                        {"type": "object", "additionalProperties": {"$ref": "#/$defs/J"}},
                        {"type": "string"},
                    ]
                }
            },
            "$ref": "#/$defs/J",
        }
    )
    assert [node.ref_node for node in schema.nodes] == [None, 0, 0]


def test_union_of_a_bare_type_and_a_recursive_one_compiles() -> None:
    schema = compile_schema(
        {
            "$defs": {
                "U": {"anyOf": [{"$ref": "#/$defs/O"}, {"type": "array", "items": {"$ref": "#/$defs/U"}}]},
                "O": {"type": "object"},
            },
            "$ref": "#/$defs/U",
        }
    )
    assert [node.ref_node for node in schema.nodes] == [None, 0]
