"""One schema object turned into facts: what it says about each JSON type.

References, single `allOf` and unions are resolved here, so that a node of the field table has one set of
facts. Unknown keywords are refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

from ._pattern import Pattern
from .constants import ALL_TYPES, FieldType
from .errors import SchemaError
from .formats import FORMATS
from .limits import Limits
from .number import Number, compare, from_python, is_integer, is_multiple
from .pattern import compile_pattern
from .rules import UNBOUNDED

TYPE_BITS: Final[dict[str, int]] = {
    "string": FieldType.STRING,
    "integer": FieldType.INTEGER,
    "number": FieldType.INTEGER | FieldType.NUMBER,
    "boolean": FieldType.BOOLEAN,
    "null": FieldType.NULL,
    "object": FieldType.OBJECT,
    "array": FieldType.ARRAY,
}
NUMERIC: Final = int(FieldType.INTEGER | FieldType.NUMBER)

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
        "deprecated",
        "readOnly",
        "writeOnly",
        "$defs",
        "definitions",
    )
)
LISTED: Final = frozenset(("contentEncoding", "contentMediaType", "contentSchema"))
CHECKED: Final = frozenset(
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
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
        "prefixItems",
        "items",
        "minItems",
        "maxItems",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
    )
)
HINTS: Final = {
    "nullable": 'write "type": [..., "null"]',
    "discriminator": "is not a keyword of JSON Schema",
}

Place = tuple[Any, str]
"""A schema and its JSON Pointer."""


@dataclass(frozen=True, slots=True)
class StringFacts:
    """What is said about strings."""

    enum: tuple[str, ...] | None = None
    min_length: int = 0
    max_length: int = UNBOUNDED
    format: str = ""
    pattern: Pattern | None = None


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """What is said about numbers."""

    enum: tuple[Number, ...] | None = None
    integer_only: bool = False
    is_double: bool = False
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Number | None = None

    def allows(self, number: Number) -> bool:
        """Whether a member of `enum` keeps the other keywords."""
        return not (
            (self.integer_only and not is_integer(number))
            or (self.minimum is not None and compare(number, self.minimum) < 0)
            or (self.maximum is not None and compare(number, self.maximum) > 0)
            or (self.exclusive_minimum is not None and compare(number, self.exclusive_minimum) <= 0)
            or (self.exclusive_maximum is not None and compare(number, self.exclusive_maximum) >= 0)
            or (self.multiple_of is not None and not is_multiple(number, self.multiple_of))
        )


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What is said about objects. `origin` is the pointer of the schema that says it."""

    origin: str
    properties: dict[str, Place] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    additional: Place = (True, "")
    min_properties: int = 0
    max_properties: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What is said about arrays."""

    origin: str
    prefix: tuple[Place, ...] = ()
    items: Place = (True, "")
    min_items: int = 0
    max_items: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Facts:
    """What a schema says. Facts about a type count only where `types` has its bit."""

    types: int
    declared_types: int
    enum_keyword: str
    string: StringFacts
    number: NumberFacts
    bools: frozenset[bool]
    object: ObjectFacts
    array: ArrayFacts


class Reader:
    """Reads the schemas of one document; counts what it uses of the caps."""

    def __init__(self, root: Any, limits: Limits, *, format_assertion: bool) -> None:
        self.root = root
        self.limits = limits
        self.format_assertion = format_assertion
        self.annotations: dict[str, None] = {}
        self._known: dict[str, Facts] = {}
        self.used = {"schema_steps": 0, "properties": 0, "enum_values": 0, "enum_bytes": 0}

    def read(self, place: Place, chain: frozenset[str] = frozenset()) -> Facts:
        """The facts of a schema. `chain` holds the references followed without progress."""
        schema, pointer = place
        known = self._known.get(pointer)
        if known is None:
            # Read once, however often it is referred to: the work is bounded by the size of the schema.
            known = self._known[pointer] = self._read(schema, pointer, chain)
        return known

    def _read(  # noqa: C901  # one branch per way to refer to other schemas
        self, schema: Any, pointer: str, chain: frozenset[str]
    ) -> Facts:
        # Imported here because unions are made of facts, and facts of unions.
        from .unions import merge  # noqa: PLC0415

        self._count("schema_steps", self.used["schema_steps"] + 1, pointer, "max_schema_steps")
        if isinstance(schema, bool):
            return self._plain({}, pointer) if schema else _nothing(pointer)
        if not isinstance(schema, dict):
            raise SchemaError(pointer, pointer.rpartition("/")[2] or "type", "is no schema")
        if len(chain) > self.limits.max_depth:
            raise SchemaError(pointer, "max_depth", f"more than {self.limits.max_depth} levels of unions")
        self._check_keywords(schema, pointer)
        for keyword in ("$ref", "allOf", "anyOf", "oneOf"):
            if keyword not in schema:
                continue
            target = f"{pointer}/{keyword}"
            if pointer in chain:
                raise SchemaError(target, keyword, "refers to itself without a value in between")
            inner = chain | {pointer}
            self._refuse_siblings(schema, pointer, keyword)
            if keyword == "$ref":
                return self.read(self._resolve(schema["$ref"], target), inner)
            branches = schema[keyword]
            if not isinstance(branches, list) or not branches:
                raise SchemaError(target, keyword, "must be a list of schemas that is not empty")
            facts = [self.read((b, f"{target}/{i}"), inner) for i, b in enumerate(branches)]
            if keyword == "allOf":
                if len(branches) != 1:
                    raise SchemaError(target, keyword, "more than one schema is not supported")
                return facts[0]
            merged = merge(facts, keyword, target)
            types = self._types(schema, pointer)
            return merged if types is None else _narrowed(merged, types)
        return self._plain(schema, pointer)

    def _count(self, name: str, value: int, pointer: str, cap: str) -> None:
        self.used[name] = max(self.used[name], value)
        if value > getattr(self.limits, cap):
            raise SchemaError(pointer, cap, f"more than {getattr(self.limits, cap)}")

    def _check_keywords(self, schema: dict[str, Any], pointer: str) -> None:
        for keyword in schema:
            if keyword in CHECKED or keyword in SILENT:
                continue
            if keyword in LISTED:
                self.annotations[keyword] = None
                continue
            where = f"{pointer}/{escape(keyword)}"
            raise SchemaError(where, keyword, HINTS.get(keyword, "is not supported"))
        nested_id = schema.get("$id")
        if nested_id is not None and pointer and not str(nested_id).startswith("#"):
            raise SchemaError(f"{pointer}/$id", "$id", "below the root would move the base of references")

    def _refuse_siblings(self, schema: dict[str, Any], pointer: str, keyword: str) -> None:
        allowed = {keyword, "type"} if keyword in ("anyOf", "oneOf") else {keyword}
        for sibling in schema:
            if sibling in CHECKED and sibling not in allowed:
                where = f"{pointer}/{sibling}"
                raise SchemaError(where, sibling, f"beside {keyword} is not supported")

    def _resolve(self, ref: object, pointer: str) -> Place:
        if not isinstance(ref, str):
            raise SchemaError(pointer, "$ref", "must be a string")
        if ref != "#" and not ref.startswith("#/"):
            raise SchemaError(pointer, "$ref", "only references inside the schema (#/...) are followed")
        schema = self.root
        at = ""
        for raw in unquote(ref[1:]).split("/")[1:]:
            token = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and token in schema:
                schema = schema[token]
            elif isinstance(schema, list) and token.isascii() and token.isdigit() and len(token) < 10:
                if int(token) >= len(schema):
                    raise SchemaError(pointer, "$ref", "names nothing")
                schema = schema[int(token)]
            else:
                raise SchemaError(pointer, "$ref", "names nothing")
            at = f"{at}/{raw}"
        return schema, at

    def _types(self, schema: dict[str, Any], pointer: str) -> int | None:
        if "type" not in schema:
            return None
        said = schema["type"]
        names = said if isinstance(said, list) else [said]
        bits = 0
        for name in names:
            if not isinstance(name, str) or name not in TYPE_BITS:
                raise SchemaError(f"{pointer}/type", "type", "names no JSON type")
            bits |= TYPE_BITS[name]
        return bits

    def _plain(self, schema: dict[str, Any], pointer: str) -> Facts:
        said = self._types(schema, pointer)
        types = ALL_TYPES if said is None else said
        names = schema.get("type", ())
        names = names if isinstance(names, list) else [names]
        facts = Facts(
            types=types,
            declared_types=types,
            enum_keyword="",
            string=self._string(schema, pointer),
            number=self._number(schema, pointer, types, "number" in names and "integer" not in names),
            bools=frozenset((False, True)),
            object=self._object(schema, pointer),
            array=self._array(schema, pointer),
        )
        for keyword in ("enum", "const"):
            if keyword in schema:
                facts = self._enumerated(facts, schema[keyword], keyword, f"{pointer}/{keyword}")
        return facts

    def _string(self, schema: dict[str, Any], pointer: str) -> StringFacts:
        name = schema.get("format", "")
        if not isinstance(name, str):
            raise SchemaError(f"{pointer}/format", "format", "must be a string")
        if name and not (self.format_assertion and name in FORMATS):
            self.annotations[f"format:{name}"] = None
            name = ""
        return StringFacts(
            min_length=self._size(schema, "minLength", pointer, 0),
            max_length=self._size(schema, "maxLength", pointer, UNBOUNDED),
            format=name,
            pattern=self._pattern(schema, f"{pointer}/pattern"),
        )

    def _pattern(self, schema: dict[str, Any], pointer: str) -> Pattern | None:
        if "pattern" not in schema:
            return None
        text = schema["pattern"]
        if not isinstance(text, str):
            raise SchemaError(pointer, "pattern", "must be a string")
        return compile_pattern(text, limits=self.limits, pointer=pointer)

    def _number(self, schema: dict[str, Any], pointer: str, types: int, is_double: bool) -> NumberFacts:
        step = self._bound(schema, "multipleOf", pointer)
        if step is not None and step[0] <= 0:
            raise SchemaError(f"{pointer}/multipleOf", "multipleOf", "must be above 0")
        return NumberFacts(
            integer_only=not types & FieldType.NUMBER,
            is_double=is_double,
            minimum=self._bound(schema, "minimum", pointer),
            maximum=self._bound(schema, "maximum", pointer),
            exclusive_minimum=self._bound(schema, "exclusiveMinimum", pointer),
            exclusive_maximum=self._bound(schema, "exclusiveMaximum", pointer),
            multiple_of=step,
        )

    def _object(self, schema: dict[str, Any], pointer: str) -> ObjectFacts:
        where = f"{pointer}/properties"
        named = schema.get("properties", {})
        if not isinstance(named, dict):
            raise SchemaError(where, "properties", "must be an object of schemas")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise SchemaError(f"{pointer}/required", "required", "must be a list of names")
        additional = (schema.get("additionalProperties", True), f"{pointer}/additionalProperties")
        properties = {key: (value, f"{where}/{escape(key)}") for key, value in named.items()}
        for name in required:
            # A required name without a schema is judged as an additional property is.
            properties.setdefault(name, additional)
        for name in properties:
            self._check_text(name, where, "properties")
        self._count("properties", len(properties), where, "max_properties")
        return ObjectFacts(
            origin=pointer,
            properties=properties,
            required=tuple(dict.fromkeys(required)),
            additional=additional,
            min_properties=self._size(schema, "minProperties", pointer, 0),
            max_properties=self._size(schema, "maxProperties", pointer, UNBOUNDED),
        )

    def _array(self, schema: dict[str, Any], pointer: str) -> ArrayFacts:
        prefix = schema.get("prefixItems", [])
        where = f"{pointer}/prefixItems"
        if not isinstance(prefix, list):
            raise SchemaError(where, "prefixItems", "must be a list of schemas")
        items = schema.get("items", True)
        if isinstance(items, list):
            raise SchemaError(f"{pointer}/items", "items", "a list of schemas is written prefixItems")
        return ArrayFacts(
            origin=pointer,
            prefix=tuple((value, f"{where}/{i}") for i, value in enumerate(prefix)),
            items=(items, f"{pointer}/items"),
            min_items=self._size(schema, "minItems", pointer, 0),
            max_items=self._size(schema, "maxItems", pointer, UNBOUNDED),
        )

    def _size(self, schema: dict[str, Any], keyword: str, pointer: str, absent: int) -> int:
        value = schema.get(keyword)
        if value is None and keyword not in schema:
            return absent
        if isinstance(value, (float, Decimal)) and value == int(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
            raise SchemaError(f"{pointer}/{keyword}", keyword, "must be a whole number from 0")
        return value

    def _bound(self, schema: dict[str, Any], keyword: str, pointer: str) -> Number | None:
        if keyword not in schema:
            return None
        value = schema[keyword]
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise SchemaError(f"{pointer}/{keyword}", keyword, "must be a number")
        return from_python(value)

    def _check_text(self, text: str, pointer: str, keyword: str) -> None:
        if len(text.encode()) > self.limits.max_key_bytes:
            raise SchemaError(pointer, "max_key_bytes", f"a key of {keyword} is too long")

    def _enumerated(  # noqa: C901  # one branch per type of member
        self, facts: Facts, said: object, keyword: str, pointer: str
    ) -> Facts:
        if keyword == "enum" and not isinstance(said, list):
            raise SchemaError(pointer, keyword, "must be a list of values")
        members = said if keyword == "enum" and isinstance(said, list) else [said]
        self._count("enum_values", len(members), pointer, "max_enum_values")
        strings: dict[str, None] = {}
        numbers: dict[Number, None] = {}
        bools: set[bool] = set()
        has_null = False
        for member in members:
            if member is None:
                has_null = True
            elif isinstance(member, bool):
                bools.add(member)
            elif isinstance(member, str):
                if string_allows(facts.string, member):
                    strings[member] = None
            elif isinstance(member, (int, float, Decimal)):
                number = from_python(member)
                if facts.number.allows(number):
                    numbers[number] = None
            else:
                raise SchemaError(pointer, keyword, "arrays and objects are not supported as members")
        self._count("enum_bytes", sum(len(s.encode()) for s in strings), pointer, "max_enum_bytes")
        if facts.string.enum is not None:
            strings = dict.fromkeys(s for s in facts.string.enum if s in strings)
        if facts.number.enum is not None:
            numbers = dict.fromkeys(n for n in facts.number.enum if n in numbers)
        types = facts.types & (
            (FieldType.STRING if strings else 0)
            | (FieldType.INTEGER if numbers else 0)
            | (FieldType.NUMBER if any(not is_integer(n) for n in numbers) else 0)
            | (FieldType.BOOLEAN if bools & facts.bools else 0)
            | (FieldType.NULL if has_null else 0)
        )
        return replace(
            facts,
            types=types,
            enum_keyword=keyword,
            string=StringFacts(enum=tuple(strings)),
            number=NumberFacts(enum=tuple(numbers), is_double=facts.number.is_double),
            bools=facts.bools & bools,
        )


def string_allows(facts: StringFacts, text: str) -> bool:
    """Whether a member of `enum` keeps the other keywords."""
    if len(text) < facts.min_length or (facts.max_length != UNBOUNDED and len(text) > facts.max_length):
        return False
    if facts.pattern is not None and not facts.pattern.search(text):
        return False
    return not facts.format or FORMATS[facts.format](text)


def escape(token: str) -> str:
    """A reference token of a JSON Pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def type_names(types: int) -> Iterable[str]:
    """Names of the types in a bit set, `integer` only where `number` is absent."""
    for name, bits in TYPE_BITS.items():
        if types & bits == bits and not (name == "integer" and types & FieldType.NUMBER):
            yield name


def _nothing(pointer: str) -> Facts:
    return Facts(
        0,
        0,
        "",
        StringFacts(),
        NumberFacts(),
        frozenset(),
        ObjectFacts(pointer),
        ArrayFacts(pointer),
    )


def _narrowed(facts: Facts, types: int) -> Facts:
    """`type` beside a union."""
    number = facts.number
    if types & NUMERIC == FieldType.INTEGER:
        members = None if number.enum is None else tuple(n for n in number.enum if is_integer(n))
        number = replace(number, enum=members, integer_only=True)
    return replace(facts, types=facts.types & types, declared_types=facts.declared_types & types, number=number)


def plain_tree(value: object, limits: Limits, pointer: str = "", depth: int = 0) -> Any:
    """A schema given as Python objects, as dict, list and scalars, checked."""
    if depth > limits.max_depth * 3:
        raise SchemaError(pointer, "max_depth", f"more than {limits.max_depth} levels")
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, Decimal)):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
            raise SchemaError(pointer, "number", "must be finite")
        return value
    if isinstance(value, Mapping):
        tree = {}
        for key, member in value.items():
            if not isinstance(key, str):
                raise SchemaError(pointer, "key", "must be a string")
            tree[key] = plain_tree(member, limits, f"{pointer}/{escape(key)}", depth + 1)
        return tree
    if isinstance(value, (list, tuple)):
        return [plain_tree(m, limits, f"{pointer}/{i}", depth + 1) for i, m in enumerate(value)]
    raise SchemaError(pointer, "value", f"{type(value).__name__} is no JSON type")
