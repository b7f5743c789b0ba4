"""The grammar of what is missing from a document whose beginning is final.

An engine's grammar starts where generation starts, so it must describe the rest alone: for each container that is
open its further members and its end, innermost first. It allows a part of what the schema does: no members whose names
the schema does not say, where it says some; and no optional properties again that the model has passed over.

Continued are objects with `properties` or with one schema for all values, arrays with `items`, behind local `$ref` and
unions of which one branch alone fits: it has the container's type, its names, and what `const` or `enum` says of its
members; strings under lengths only. A container under any other keyword that speaks of its members is not:
UnfinishableError names it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ssop_inference.core.beginning import ITEM_SEPARATOR, KEY_SEPARATOR, Beginning, OpenContainer, Token
from ssop_inference.core.constraint import grammar_schema
from ssop_inference.core.relaxation import map_schemas

MAX_GRAMMAR_BYTES: Final = 524_288
_MAX_REFERENCES: Final = 64
_ROOT: Final = "#/$defs/root"
_ANNOTATIONS: Final = frozenset(
    {"type", "title", "description", "default", "examples", "$schema", "$defs", "definitions", "$comment"}
    | {"deprecated", "readOnly", "writeOnly", "x-guidance", "$id"}
)
_OBJECT: Final = frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
_ARRAY: Final = frozenset({"items", "minItems", "maxItems"})
_STRING: Final = frozenset({"minLength", "maxLength"})
# Other names are resolved by where they stand, and the schema stands elsewhere in the grammar.
_UNMOVABLE: Final = frozenset({"$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"})
_CHARACTER: Final = r'([^"\\\x00-\x1f\x7f]|\\["\\\/bfnrt]|\\u[0-9a-cA-CefEF][0-9a-fA-F]{3})'


class UnfinishableError(Exception):
    """The rest of the document has no grammar; the text says what is in the way, never the content."""


def write_remainder(schema: Any, beginning: Beginning) -> str:
    """The grammar of the rest, for a schema as the engine takes it (`Constraint.schema`). Raises UnfinishableError."""
    writer = _Writer(schema)
    parts: list[str] = []
    if beginning.open_string is not None:
        at = writer.descend(beginning.containers, beginning.open_string_tokens)
        parts.append(writer.finish_string(at, beginning.open_string))
    for container in reversed(beginning.containers):
        at = writer.descend(beginning.containers, container.tokens)
        parts.append(writer.finish_array(at, container) if container.is_array else writer.finish_object(at, container))
    return writer.grammar(parts)


class _Writer:
    """Makes rules. Schemas inside are named by what a local `$ref` would say."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._rules: list[str] = []
        self._names: dict[str, str] = {}
        self._moved: Any = None
        self._size = 0

    def grammar(self, parts: Sequence[str]) -> str:
        """The whole, that starts with these parts in order."""
        return "\n".join(["%llguidance {}", f"start: {' '.join(parts) or _literal('')}", *self._rules])

    def descend(self, containers: Sequence[OpenContainer], tokens: tuple[Token, ...]) -> str:
        """The pointer of the schema of a value, given the open containers above it."""
        pointer = "#"
        for depth, token in enumerate(tokens):
            schema, pointer = self._resolve(pointer, containers[depth])
            pointer = self._step(schema, pointer, token)
        return pointer

    def finish_object(self, pointer: str, container: OpenContainer) -> str:
        """Further members of an object, and its end."""
        schema, pointer = self._resolve(pointer, container)
        self._check(schema, _OBJECT, "an object")
        properties = schema.get("properties", {})
        if not properties:
            return self._finish_map(schema, pointer, container)
        if "minProperties" in schema or "maxProperties" in schema:
            raise UnfinishableError("an object that counts its properties is open")
        required = set(schema.get("required", ()))
        if required - properties.keys() - set(container.keys):
            raise UnfinishableError("an object requires a property that has no schema")
        names = list(properties)
        seen = [names.index(key) for key in container.keys if key in properties]
        last = max(seen, default=-1)
        parts: list[str] = []
        for index, name in enumerate(names):
            if name in container.keys or (index < last and name not in required) or properties[name] is False:
                continue
            key = _literal(ITEM_SEPARATOR + json.dumps(name, ensure_ascii=False) + KEY_SEPARATOR)
            member = f"{key} {self._value(f'{pointer}/properties/{_escape(name)}')}"
            parts.append(f"({member})" if name in required else f"({member})?")
        return " ".join([*parts, _literal("}")])

    def _finish_map(self, schema: Mapping[str, Any], pointer: str, container: OpenContainer) -> str:
        if set(schema.get("required", ())) - set(container.keys):
            raise UnfinishableError("an object requires a property that has no schema")
        if schema.get("additionalProperties", True) is False:
            return _literal("}")
        value = self._value(f"{pointer}/additionalProperties", schema.get("additionalProperties", True))
        taken = "|".join(_literal(json.dumps(key, ensure_ascii=False)) for key in container.keys)
        key = self._rule(f'/"{_CHARACTER}{{0,64}}"/ & ~({taken})', is_terminal=True)
        member = f"{_literal(ITEM_SEPARATOR)} {key} {_literal(KEY_SEPARATOR)} {value}"
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        return f"{_repeat(member, least - container.count, most, container.count)} {_literal('}')}"

    def finish_array(self, pointer: str, container: OpenContainer) -> str:
        """Further items of an array, and its end."""
        schema, pointer = self._resolve(pointer, container)
        self._check(schema, _ARRAY, "an array")
        items = schema.get("items", True)
        if items is False:
            return _literal("]")
        member = f"{_literal(ITEM_SEPARATOR)} {self._value(f'{pointer}/items', items)}"
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        return f"{_repeat(member, least - container.count, most, container.count)} {_literal(']')}"

    def finish_string(self, pointer: str, written: str) -> str:
        """Further characters of a string, and its end."""
        schema, pointer = self._resolve(pointer)
        self._check(schema, _STRING, "a string")
        least = max(0, schema.get("minLength", 0) - len(written))
        most = schema.get("maxLength")
        bound = "" if most is None else str(max(least, most - len(written)))
        return f"{self._rule(f'/{_CHARACTER}{{{least},{bound}}}/', is_terminal=True)} {_literal(chr(34))}"

    def _check(self, schema: Mapping[str, Any], known: frozenset[str], what: str) -> None:
        others = sorted(schema.keys() - known - _ANNOTATIONS)
        if others:
            raise UnfinishableError(f"{what} under {', '.join(others)} is open")

    def _step(self, schema: Mapping[str, Any], pointer: str, token: Token) -> str:
        if isinstance(token, int):
            if "prefixItems" in schema:
                raise UnfinishableError("an array under prefixItems is open")
            return f"{pointer}/items"
        if token in schema.get("properties", {}):
            return f"{pointer}/properties/{_escape(token)}"
        return f"{pointer}/additionalProperties"

    def _resolve(self, pointer: str, container: OpenContainer | None = None) -> tuple[Mapping[str, Any], str]:
        """The schema behind references, and behind unions with one branch that fits; with its pointer.

        `container` None: a string.
        """
        wanted = "string" if container is None else "array" if container.is_array else "object"
        for _ in range(_MAX_REFERENCES):
            schema = self._find(pointer)
            if schema is True:
                return {}, pointer
            if not isinstance(schema, Mapping):
                raise UnfinishableError("no value conforms to the schema of what is open")
            if "$ref" in schema:
                pointer = _reference(schema, "$ref")
                continue
            union = next((key for key in ("anyOf", "oneOf") if key in schema), None)
            if union is None:
                return schema, pointer
            branches = [
                f"{pointer}/{union}/{number}"
                for number, branch in enumerate(schema[union])
                if wanted in self._types(branch)
            ]
            if len(branches) > 1 and container is not None:
                branches = [branch for branch in branches if self._fits(branch, container)]
            if len(branches) != 1 or schema.keys() - _ANNOTATIONS - {union}:
                raise UnfinishableError(f"a union of several schemas ({union}) is open")
            (pointer,) = branches
        raise UnfinishableError("references go in a circle")

    def _fits(self, pointer: str, container: OpenContainer) -> bool:
        """Whether what is known of the members of an object can stand in a branch."""
        schema = self._follow(self._find(pointer))
        properties: Mapping[str, Any] = schema.get("properties", {})
        if schema.get("additionalProperties") is False and not properties.keys() >= set(container.keys):
            return False
        for key, word in container.words.items():
            rule = self._follow(properties.get(key))
            allowed = [rule["const"]] if "const" in rule else rule.get("enum")
            if allowed is not None and not any(type(value) is type(word) and value == word for value in allowed):
                return False
        return True

    def _follow(self, schema: Any) -> Mapping[str, Any]:
        """A schema, behind references that stand alone; {} where it says nothing."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping):
                return {}
            if "$ref" not in schema:
                return schema
            schema = self._find(_reference(schema, "$ref"))
        raise UnfinishableError("references go in a circle")

    def _types(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """The types that a branch may have, as far as it says so itself."""
        every = frozenset({"string", "array", "object"})
        if schema is False or depth > _MAX_REFERENCES:
            return frozenset()
        if not isinstance(schema, Mapping):
            return every
        if "type" in schema:
            types = schema["type"]
            return frozenset([types] if isinstance(types, str) else types)
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if values is not None:
                return frozenset(name for value in values if (name := _NAMES.get(type(value))))
        if "$ref" in schema:
            return self._types(self._find(_reference(schema, "$ref")), depth + 1)
        return every

    def _find(self, pointer: str) -> Any:
        schema = self._root
        for token in pointer.split("/")[1:]:
            name = _unescape(token)
            if isinstance(schema, Mapping):
                schema = schema.get(name, True)
            elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
                schema = schema[int(name)]
            else:
                return True
        return schema

    def _value(self, pointer: str, schema: Any = None) -> str:
        """A rule for a whole value of the schema at the pointer."""
        schema = self._find(pointer) if schema is None else schema
        if not isinstance(schema, Mapping):
            schema = {}
        references = _references(schema)
        if references:
            named = self._definitions(references)
            if named is not None:
                schema = {**schema, **named}
            else:
                if self._moved is None:
                    self._moved = _move(self._root)
                schema = {"$ref": _ROOT + pointer[1:], "$defs": {"root": self._moved}}
        return self._rule(f"%json {grammar_schema(schema)}")

    def _definitions(self, references: set[str]) -> dict[str, dict[str, Any]] | None:
        """The definitions that a schema needs, as its own keywords; None where it refers to anything else."""
        found: dict[str, dict[str, Any]] = {}
        pending, seen = list(references), set(references)
        while pending:
            match pending.pop().split("/"):
                case ["#", ("$defs" | "definitions") as keyword, name]:
                    pass
                case _:
                    return None
            definition = self._find(f"#/{keyword}/{name}")
            found.setdefault(keyword, {})[_unescape(name)] = definition
            new = _references(definition) - seen
            pending += new
            seen |= new
        return found

    def _rule(self, body: str, *, is_terminal: bool = False) -> str:
        if body not in self._names:
            number = len(self._names)
            self._size += len(body)
            if self._size > MAX_GRAMMAR_BYTES:
                raise UnfinishableError("the grammar of the rest is too large")
            name = self._names[body] = f"T{number}" if is_terminal else f"v{number}"
            self._rules.append(f"{name}: {body}")
        return self._names[body]


_NAMES: Final[Mapping[type, str]] = {str: "string", list: "array", dict: "object"}


def _repeat(member: str, least: int, most: int | None, count: int) -> str:
    least = max(0, least)
    if most is None:
        return f"({member}){{{least},}}"
    room = max(least, most - count)
    return f"({member}){{{least},{room}}}" if room else ""


def _reference(schema: Mapping[str, Any], key: str) -> str:
    reference = schema[key]
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise UnfinishableError("a reference by name is open")
    if schema.keys() - _ANNOTATIONS - {key}:
        raise UnfinishableError("a reference with other keywords is open")
    return reference


def _references(schema: Any) -> set[str]:
    """All that stands as `$ref` in a schema."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        inner = pending.pop()
        if isinstance(inner, list):
            pending += inner
        elif isinstance(inner, Mapping):
            if isinstance(inner.get("$ref"), str):
                found.add(inner["$ref"])
            pending += inner.values()
    return found


def _move(schema: Any) -> Any:
    """The schema with its references as they are once it stands below `$defs/root`. Raises UnfinishableError."""
    if not isinstance(schema, Mapping):
        return schema
    if schema.keys() & _UNMOVABLE:
        raise UnfinishableError("a schema with anchors is open")
    moved = dict(map_schemas(schema, _move))
    moved.pop("$id", None)
    if isinstance(reference := moved.get("$ref"), str):
        if not (reference == "#" or reference.startswith("#/")):
            raise UnfinishableError("a reference by name is open")
        moved["$ref"] = _ROOT + reference[1:]
    return moved


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
