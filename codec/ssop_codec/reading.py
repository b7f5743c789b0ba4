"""Reads schema objects: what each says becomes facts of a node, the rest is left to the judge.

Every keyword is judged, known to say nothing, listed as an annotation, or refused; none is skipped unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from . import keywords
from ._pattern import Pattern
from .conjunction import conjoin
from .constants import ALL_TYPES, FieldType
from .errors import SchemaError
from .facts import (
    TYPE_BITS,
    ArrayFacts,
    Facts,
    NumberFacts,
    ObjectFacts,
    Residual,
    StringFacts,
    nothing,
    places,
)
from .formats import FORMATS
from .keywords import Dialect
from .limits import Limits
from .number import Number, from_python, is_integer
from .pattern import compile_pattern
from .references import Place, Resolver, escape
from .rules import UNBOUNDED
from .unions import merge

_NO_STRING: Final = StringFacts()
_NO_OBJECT: Final = ObjectFacts()
_NO_ARRAY: Final = ArrayFacts()
_BOTH: Final = frozenset((False, True))
_JUDGED: Final = frozenset((*keywords.JUDGED, "enum", "const"))


class Reader:
    """Reads the schemas of one document; counts what it uses of the caps."""

    def __init__(self, root: Any, limits: Limits, *, format_assertion: bool, dialect: Dialect, has_names: bool) -> None:
        self.root = root
        self.limits = limits
        self.format_assertion = format_assertion
        self.dialect = dialect
        self.annotations: dict[str, None] = {}
        self.resolver = Resolver(root, dialect, has_names=has_names)
        self._known: dict[str, Facts] = {}
        self._plain: dict[str, Facts] = {}
        self._unbound: dict[tuple[bool, bool], NumberFacts] = {}
        self.given: dict[str, Any] = {}
        """What stands at each pointer that was read."""
        self.used = {"schema_steps": 0, "merged_schemas": 0, "properties": 0, "enum_values": 0, "enum_bytes": 0}

    def read(self, place: Place, chain: frozenset[str] = frozenset()) -> Facts:
        """The facts of a schema. `chain` holds the schemas of the same value that lead here."""
        schema, pointer = place
        known = self._known.get(pointer)
        if known is None:
            # Read once, however often it is referred to: the work is bounded by the size of the schema.
            known = self._known[pointer] = self._read(schema, pointer, chain)
        return known

    def schema_at(self, place: Place) -> dict[str, Any] | bool:
        """The schema without what its dialect does not know. Counts a step and notes the annotations."""
        schema, pointer = place
        self.count("schema_steps", self.used["schema_steps"] + 1, pointer, "max_schema_steps")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError(pointer, pointer.rpartition("/")[2] or "type", "is no schema")
        for found in keywords.annotations_of(schema, pointer, self.dialect):
            self.annotations[found] = None
        return keywords.effective(schema, self.dialect)

    def _read(self, given: Any, pointer: str, chain: frozenset[str]) -> Facts:
        self.given[pointer] = given
        schema = self.schema_at((given, pointer))
        if isinstance(schema, bool):
            return self.plain({}, pointer) if schema else nothing()
        if len(chain) > self.limits.max_depth:
            raise SchemaError(pointer, "max_depth", f"more than {self.limits.max_depth} levels of unions")
        in_place = [keyword for keyword in keywords.IN_PLACE if keyword in schema]
        says_more = not in_place or not keywords.PLAIN.isdisjoint(schema)
        parts = [self.plain_of(schema, pointer)] if says_more else []
        for keyword in in_place:
            if pointer in chain:
                raise SchemaError(f"{pointer}/{keyword}", keyword, "refers to itself without a value in between")
            found = [self.read(place, chain | {pointer}) for place in self.same_value(schema, pointer, keyword)]
            if keyword in ("$ref", "allOf"):
                parts += found
            else:
                parts.append(merge(found, keyword, pointer))
        facts = parts[0] if len(parts) == 1 else conjoin(parts, pointer, self.limits)
        if not facts.residuals and _JUDGED.isdisjoint(schema):
            return facts
        left = [
            Residual(types & facts.types, pointer, keyword)
            for keyword, types in keywords.JUDGED.items()
            if keyword in schema and types & facts.types and not (keyword == "uniqueItems" and schema[keyword] is False)
        ]
        if facts.types & (FieldType.OBJECT | FieldType.ARRAY):
            left += [
                Residual(facts.types & (FieldType.OBJECT | FieldType.ARRAY), pointer, keyword)
                for keyword in ("enum", "const")
                if keyword in schema
            ]
        residuals = [r for r in facts.residuals if r.types & facts.types]
        return replace(facts, residuals=tuple(dict.fromkeys((*left, *residuals))))

    def same_value(self, schema: dict[str, Any], pointer: str, keyword: str) -> list[Place]:
        """The schemas that `$ref`, `allOf`, `anyOf` or `oneOf` apply to the value itself."""
        target = f"{pointer}/{keyword}"
        if keyword == "$ref":
            return [self.resolver.resolve(schema["$ref"], target)]
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise SchemaError(target, keyword, "must be a list of schemas that is not empty")
        return [(branch, f"{target}/{i}") for i, branch in enumerate(branches)]

    def count(self, name: str, value: int, pointer: str, cap: str) -> None:
        """Note the use of a cap. Raises SchemaError beyond it."""
        if value > self.used[name]:
            self.used[name] = value
            if value > getattr(self.limits, cap):
                raise SchemaError(pointer, cap, f"more than {getattr(self.limits, cap)}")

    def plain_of(self, schema: dict[str, Any], pointer: str) -> Facts:
        """The facts of `plain` for all keywords of the schema at `pointer`, made once."""
        known = self._plain.get(pointer)
        if known is None:
            known = self._plain[pointer] = self.plain(schema, pointer)
        return known

    # -- the keywords of one schema object --------------------------------------------------------------------

    def plain(self, schema: dict[str, Any], pointer: str) -> Facts:
        """What the keywords say that speak of the value itself, without those that apply other schemas to it."""
        said = self._types(schema, pointer)
        types = ALL_TYPES if said is None else said
        names = schema.get("type", ())
        names = names if isinstance(names, list) else [names]
        is_double = "number" in names and "integer" not in names
        facts = Facts(
            types=types,
            declared_types=types,
            enum_keyword="",
            string=_NO_STRING if keywords.ABOUT_STRINGS.isdisjoint(schema) else self._string(schema, pointer),
            number=self._number(schema, pointer, types, is_double),
            bools=_BOTH,
            object=_NO_OBJECT if keywords.ABOUT_OBJECTS.isdisjoint(schema) else self._object(schema, pointer),
            array=_NO_ARRAY if keywords.ABOUT_ARRAYS.isdisjoint(schema) else self._array(schema, pointer),
        )
        for keyword in ("enum", "const"):
            if keyword in schema:
                facts = self._enumerated(facts, schema[keyword], keyword, f"{pointer}/{keyword}")
        return facts

    def _types(self, schema: dict[str, Any], pointer: str) -> int | None:
        if "type" not in schema:
            return None
        said = schema["type"]
        bits = 0
        for name in said if isinstance(said, list) else [said]:
            if not isinstance(name, str) or name not in TYPE_BITS:
                raise SchemaError(f"{pointer}/type", "type", "names no JSON type")
            bits |= TYPE_BITS[name]
        return bits

    def _string(self, schema: dict[str, Any], pointer: str) -> StringFacts:
        name = schema.get("format", "")
        if not isinstance(name, str):
            raise SchemaError(f"{pointer}/format", "format", "must be a string")
        if name and not (self.format_assertion and name in FORMATS):
            self.annotations[f"format:{name}"] = None
            name = ""
        return StringFacts(
            min_length=self.size(schema, "minLength", pointer, 0),
            max_length=self.size(schema, "maxLength", pointer, UNBOUNDED),
            format=name,
            format_at=pointer if name else "",
            pattern=self._pattern(schema, f"{pointer}/pattern"),
            pattern_at=pointer if "pattern" in schema else "",
        )

    def _pattern(self, schema: dict[str, Any], pointer: str) -> Pattern | None:
        if "pattern" not in schema:
            return None
        text = schema["pattern"]
        if not isinstance(text, str):
            raise SchemaError(pointer, "pattern", "must be a string")
        return compile_pattern(text, limits=self.limits, pointer=pointer)

    def _number(self, schema: dict[str, Any], pointer: str, types: int, is_double: bool) -> NumberFacts:
        integer_only = not types & FieldType.NUMBER
        is_strict = self.dialect == "draft-04" and integer_only
        if keywords.ABOUT_NUMBERS.isdisjoint(schema):
            known = self._unbound.get((integer_only, is_double))
            if known is None:
                known = NumberFacts(integer_only=integer_only, is_strict=is_strict, is_double=is_double)
                self._unbound[integer_only, is_double] = known
            return known
        step = self._bound(schema, "multipleOf", pointer)
        if step is not None and step[0] <= 0:
            raise SchemaError(f"{pointer}/multipleOf", "multipleOf", "must be above 0")
        return NumberFacts(
            integer_only=integer_only,
            is_strict=is_strict,
            is_double=is_double,
            minimum=self._bound(schema, "minimum", pointer),
            maximum=self._bound(schema, "maximum", pointer),
            exclusive_minimum=self._bound(schema, "exclusiveMinimum", pointer),
            exclusive_maximum=self._bound(schema, "exclusiveMaximum", pointer),
            multiple_of=step,
        )

    def names(self, schema: dict[str, Any], pointer: str) -> tuple[str, ...]:
        """What `required` lists."""
        return self.name_list(schema.get("required", []), f"{pointer}/required", "required")

    def name_list(self, said: object, pointer: str, keyword: str) -> tuple[str, ...]:
        """A list of property names, each once."""
        if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
            raise SchemaError(pointer, keyword, "must be a list of names")
        return tuple(dict.fromkeys(said))

    def schemas(self, schema: dict[str, Any], keyword: str, pointer: str) -> dict[str, Place]:
        """The members of an object of schemas."""
        named = schema.get(keyword, {})
        if not isinstance(named, dict):
            raise SchemaError(f"{pointer}/{keyword}", keyword, "must be an object of schemas")
        return {key: (value, f"{pointer}/{keyword}/{escape(key)}") for key, value in named.items()}

    def _object(self, schema: dict[str, Any], pointer: str) -> ObjectFacts:
        where = f"{pointer}/properties"
        required = self.names(schema, pointer)
        additional = places((schema.get("additionalProperties", True), f"{pointer}/additionalProperties"))
        if "patternProperties" in schema:
            # Which keys are additional is the judge's to say.
            additional = ()
        properties = {name: places(place) for name, place in self.schemas(schema, "properties", pointer).items()}
        for name in required:
            # A required name without a schema is judged as an additional property is.
            properties.setdefault(name, additional)
        for name in properties:
            self.check_key(name, where, "properties")
        self.count("properties", len(properties), where, "max_properties")
        says_something = properties or additional or "minProperties" in schema or "maxProperties" in schema
        return ObjectFacts(
            origins=(pointer,) if says_something else (),
            properties=properties,
            required=required,
            additional=additional,
            min_properties=self.size(schema, "minProperties", pointer, 0),
            max_properties=self.size(schema, "maxProperties", pointer, UNBOUNDED),
        )

    def tuple_items(self, schema: dict[str, Any], pointer: str) -> tuple[tuple[Place, ...], Place]:
        """The schemas of the first items, and that of the others."""
        keyword, rest = "prefixItems", "items"
        if isinstance(schema.get("items"), list):
            if "prefixItems" in schema:
                raise SchemaError(f"{pointer}/items", "items", "a list beside prefixItems means nothing")
            keyword, rest = "items", "additionalItems"
        elif "additionalItems" in schema:
            self.annotations["additionalItems"] = None
        prefix = schema.get(keyword, [])
        if not isinstance(prefix, list):
            raise SchemaError(f"{pointer}/{keyword}", keyword, "must be a list of schemas")
        first = tuple((value, f"{pointer}/{keyword}/{i}") for i, value in enumerate(prefix))
        return first, (schema.get(rest, True), f"{pointer}/{rest}")

    def _array(self, schema: dict[str, Any], pointer: str) -> ArrayFacts:
        prefix, rest = self.tuple_items(schema, pointer)
        says_something = any(k in schema for k in ("prefixItems", "items", "minItems", "maxItems"))
        return ArrayFacts(
            origins=(pointer,) if says_something else (),
            prefix=tuple(places(place) for place in prefix),
            items=places(rest),
            min_items=self.size(schema, "minItems", pointer, 0),
            max_items=self.size(schema, "maxItems", pointer, UNBOUNDED),
        )

    def size(self, schema: dict[str, Any], keyword: str, pointer: str, absent: int) -> int:
        """A count that a keyword gives."""
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

    def check_key(self, text: str, pointer: str, keyword: str) -> None:
        """Refuse a property name that no document can hold."""
        if len(text) * 4 > self.limits.max_key_bytes and len(text.encode()) > self.limits.max_key_bytes:
            raise SchemaError(pointer, "max_key_bytes", f"a key of {keyword} is too long")

    def members(self, said: object, keyword: str, pointer: str) -> list[Any]:
        """The values that `enum` or `const` lists."""
        if keyword == "enum" and not isinstance(said, list):
            raise SchemaError(pointer, keyword, "must be a list of values")
        return said if keyword == "enum" and isinstance(said, list) else [said]

    def _enumerated(  # one branch per type of member
        self, facts: Facts, said: object, keyword: str, pointer: str
    ) -> Facts:
        """Narrow the facts to the members; objects and arrays among them are compared by the judge."""
        members = self.members(said, keyword, pointer)
        self.count("enum_values", len(members), pointer, "max_enum_values")
        strings: dict[str, None] = {}
        numbers: dict[Number, None] = {}
        bools: set[bool] = set()
        others = 0
        for member in members:
            if member is None:
                others |= FieldType.NULL
            elif isinstance(member, bool):
                bools.add(member)
            elif isinstance(member, str):
                if facts.string.allows(member):
                    strings[member] = None
            elif isinstance(member, (int, float, Decimal)):
                number = from_python(member)
                if facts.number.allows(number):
                    numbers[number] = None
            else:
                others |= FieldType.OBJECT if isinstance(member, dict) else FieldType.ARRAY
        self.count("enum_bytes", sum(len(s.encode()) for s in strings), pointer, "max_enum_bytes")
        types = facts.types & (
            others
            | (FieldType.STRING if strings else 0)
            | (FieldType.INTEGER if numbers else 0)
            | (FieldType.NUMBER if any(not is_integer(n) for n in numbers) else 0)
            | (FieldType.BOOLEAN if bools & facts.bools else 0)
        )
        return replace(
            facts,
            types=int(types),
            enum_keyword=keyword,
            string=StringFacts(enum=tuple(strings)),
            number=NumberFacts(enum=tuple(numbers), is_strict=facts.number.is_strict, is_double=facts.number.is_double),
            bools=facts.bools & bools,
        )


_Path = tuple["_Path", object] | None
_SCALARS: Final = frozenset((str, int, bool, type(None)))


def plain_tree(value: object, limits: Limits, path: _Path = None, depth: int = 0) -> Any:
    """A schema given as Python objects, as dict, list and scalars, checked. `path` leads to it, innermost key first."""
    if type(value) in _SCALARS:
        return value
    if depth > limits.max_depth * 3:
        raise SchemaError(_pointer_of(path), "max_depth", f"more than {limits.max_depth} levels")
    if isinstance(value, Mapping):
        tree = {}
        for key, member in value.items():
            if not isinstance(key, str):
                raise SchemaError(_pointer_of(path), "key", "must be a string")
            tree[key] = member if type(member) in _SCALARS else plain_tree(member, limits, (path, key), depth + 1)
        return tree
    if isinstance(value, (list, tuple)):
        return [plain_tree(member, limits, (path, i), depth + 1) for i, member in enumerate(value)]
    if isinstance(value, (float, Decimal)):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124
            raise SchemaError(_pointer_of(path), "number", "must be finite")
        return value
    if isinstance(value, (int, str)):
        return value
    raise SchemaError(_pointer_of(path), "value", f"{type(value).__name__} is no JSON type")


def _pointer_of(path: _Path) -> str:
    tokens = []
    while path is not None:
        path, token = path
        tokens.append(f"/{escape(str(token))}")
    return "".join(reversed(tokens))
