"""Compiles a JSON Schema: numbers its nodes in depth-first order and writes a rule for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from math import ceil
from operator import or_
from typing import Any, Final

from .canonical import canonical
from .checking import CheckBuilder
from .conjunction import conjoin
from .constants import MAX_AUTO_BUFFER_BYTES, MIN_AUTO_BUFFER_BYTES, FieldStep, FieldType
from .errors import SchemaError
from .facts import ArrayFacts, Facts, Places
from .keywords import Dialect, dialect_of
from .limits import Limits
from .reading import Reader, plain_tree
from .references import escape
from .rules import ALWAYS, FORBIDDEN, UNBOUNDED, UNTYPED, FieldNode, Rule, Schema
from .scalars import scalar_rule

SHARED_SUBTREE_NODES: Final = 32
"""A definition with more nodes than this is expanded once; its later uses refer to it. So schemas whose
definitions use each other many times stay small."""

_Origins = tuple[str, tuple[str, ...]]

_CONTAINERS: Final = int(FieldType.OBJECT | FieldType.ARRAY)
_NAMES: Final = (b'"$id":', b'"$anchor":', b'"$dynamicAnchor":')

_HEAD_BYTES: Final = 24
_OPEN_STRING_BYTES: Final = 512


class _Builder:
    def __init__(self, reader: Reader, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits
        self.checks = CheckBuilder(reader)
        self.rules: list[Rule] = []
        self.nodes: list[FieldNode] = []
        self.open: dict[_Origins, int] = {}
        self.closed: dict[_Origins, int] = {}
        self.depth = 0
        self.enum_values = 0
        self.merged = 0

    def add(
        self,
        schemas: Places,
        pointer: str,
        *,
        depth: int = 0,
        parent: int = 0,
        step: int = FieldStep.ROOT,
        key: str = "",
        index: int = 0,
        required: bool = False,
    ) -> int:
        """Give the schemas of one value a node and all below it theirs; returns its number."""
        if depth > self.limits.max_depth:
            raise SchemaError(pointer, "max_depth", f"more than {self.limits.max_depth} levels")
        node = len(self.rules)
        if node >= self.limits.max_nodes:
            raise SchemaError(pointer, "max_nodes", f"more than {self.limits.max_nodes} nodes")
        self.depth = max(self.depth, depth)
        read = [self.reader.read(place) for place in schemas] or [self.reader.plain({}, pointer)]
        self.merged += len(read) - 1
        self.reader.count("merged_schemas", self.merged, pointer, "max_schema_steps")
        facts = read[0] if len(read) == 1 else conjoin(read, pointer, self.limits)
        rule = scalar_rule(facts, pointer)
        self.rules.append(rule)
        self._count_members(rule)
        objects = ("object", facts.object.origins)
        arrays = ("array", facts.array.origins)
        rule.object_at = self._target(objects, node) if _has_members(facts) else node
        rule.array_at = self._target(arrays, node) if _has_items(facts) else node
        if node not in (rule.object_at, rule.array_at) and rule.object_at != rule.array_at:
            # A node refers to one other at most: its arrays are judged beside the rules.
            rule.array_at = node
            facts = replace(facts, array=ArrayFacts())
            self._add_roots(rule, [(int(FieldType.ARRAY), self.checks.whole(place)) for place in schemas])
        self._add_roots(rule, [(residual.types, self.checks.root(residual)) for residual in facts.residuals])
        refs = {at for at in (rule.object_at, rule.array_at) if at != node}
        self.nodes.append(FieldNode(node, parent, step, key, index, facts.types, min(refs, default=None), required))
        own = []
        if _has_members(facts) and rule.object_at == node:
            own.append(objects)
        if _has_items(facts) and rule.array_at == node:
            own.append(arrays)
        # Both are open for all children: a recursive union refers back to this one node.
        self.open.update(dict.fromkeys(own, node))
        if facts.types & FieldType.OBJECT and rule.object_at == node:
            self._add_properties(facts, rule, node, depth + 1)
        if facts.types & FieldType.ARRAY and rule.array_at == node:
            self._add_items(facts, rule, node, depth + 1)
        for origin in own:
            del self.open[origin]
            if len(self.rules) - node > SHARED_SUBTREE_NODES:
                self.closed.setdefault(origin, node)
        return node

    def _add_roots(self, rule: Rule, found: list[tuple[int, int]]) -> None:
        if not found:
            return
        roots = dict.fromkeys(check for _, check in (*((t, c) for t, c in rule.roots), *found) if check != ALWAYS)
        rule.roots = tuple(
            (reduce(or_, (types for types, check in (*rule.roots, *found) if check == root)), root) for root in roots
        )

    def _count_members(self, rule: Rule) -> None:
        if rule.enum_strings is None and rule.enum_numbers is None:
            return
        self.enum_values += len(rule.enum_strings or ()) + len(rule.enum_numbers or ())
        cap = self.limits.max_table_enum_values
        if self.enum_values > cap:
            raise SchemaError(rule.pointer, "max_table_enum_values", f"more than {cap}")

    def _target(self, origins: _Origins, node: int) -> int:
        at = self.open.get(origins)
        return self.closed.get(origins, node) if at is None else at

    def _add_properties(self, facts: Facts, rule: Rule, node: int, depth: int) -> None:
        said = facts.object
        rule.required = said.required
        rule.min_properties, rule.max_properties = said.min_properties, said.max_properties
        required = frozenset(said.required)
        for key, schemas in said.properties.items():
            rule.properties[key] = self.add(
                schemas,
                schemas[0][1] if schemas else f"{rule.pointer}/properties/{escape(key)}",
                depth=depth,
                parent=node,
                step=FieldStep.PROPERTY,
                key=key,
                required=key in required,
            )
        rule.additional = self._rest(said.additional, node, FieldStep.MAP_VALUE, depth)

    def _add_items(self, facts: Facts, rule: Rule, node: int, depth: int) -> None:
        said = facts.array
        rule.min_items, rule.max_items = said.min_items, said.max_items
        rule.prefix = tuple(
            self.add(
                schemas,
                schemas[0][1] if schemas else f"{rule.pointer}/prefixItems/{index}",
                depth=depth,
                parent=node,
                step=FieldStep.PREFIX_ITEM,
                index=index,
            )
            for index, schemas in enumerate(said.prefix)
        )
        rule.items = self._rest(said.items, node, FieldStep.ITEM, depth)

    def _rest(self, schemas: Places, node: int, step: int, depth: int) -> int:
        """Node of additional properties or items; none where nothing or anything is allowed."""
        if any(schema is False for schema, _ in schemas):
            return FORBIDDEN
        if not schemas:
            return UNTYPED
        return self.add(schemas, schemas[0][1], depth=depth, parent=node, step=step)


def _has_members(facts: Facts) -> bool:
    said = facts.object
    return bool(facts.types & FieldType.OBJECT and (said.properties or _typed(said.additional)))


def _has_items(facts: Facts) -> bool:
    said = facts.array
    return bool(facts.types & FieldType.ARRAY and (said.prefix or _typed(said.items)))


def _typed(schemas: Places) -> bool:
    return bool(schemas) and all(schema is not False for schema, _ in schemas)


def compile_schema(
    schema: str | bytes | Mapping[str, Any] | bool,
    *,
    limits: Limits | None = None,
    format_assertion: bool = True,
    dialect: Dialect | None = None,
) -> Schema:
    """Compile a JSON Schema.

    `format_assertion` False takes every `format` as an annotation. `dialect` None: what `$schema` says, else 2020-12.
    Raises SchemaError, which names the JSON Pointer of the keyword that is refused.
    """
    limits = limits or Limits()
    tree = _parse(schema, limits)
    try:
        text = canonical(tree)
    except (ValueError, UnicodeEncodeError) as error:
        raise SchemaError("", "schema", str(error)) from None
    if len(text) > limits.max_schema_bytes:
        raise SchemaError("", "max_schema_bytes", f"more than {limits.max_schema_bytes} bytes")
    reader = Reader(
        tree,
        limits,
        format_assertion=format_assertion,
        dialect=dialect or dialect_of(tree),
        has_names=any(name in text for name in _NAMES),
    )
    builder = _Builder(reader, limits)
    builder.add(((tree, ""),), "")
    return Schema(
        hash=hashlib.sha256(text).digest(),
        canonical=text,
        nodes=tuple(builder.nodes),
        annotations=tuple(sorted(reader.annotations)),
        auto_buffer_bytes=_auto_buffer_bytes(builder.rules),
        caps={
            "schema_bytes": len(text),
            "depth": builder.depth,
            "nodes": len(builder.rules),
            "table_enum_values": builder.enum_values,
            "checks": len(builder.checks.checks),
            **reader.used,
        },
        rules=tuple(builder.rules),
        checks=tuple(builder.checks.checks),
        patterns=builder.checks.patterns,
    )


def _parse(schema: object, limits: Limits) -> Any:
    if isinstance(schema, (str, bytes, bytearray)):
        size = len(schema.encode("utf-8", "surrogatepass")) if isinstance(schema, str) else len(schema)
        if size > limits.max_schema_bytes:
            raise SchemaError("", "max_schema_bytes", f"more than {limits.max_schema_bytes} bytes")
        try:
            schema = json.loads(schema, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=Decimal)
        except RecursionError:
            raise SchemaError("", "max_depth", f"more than {limits.max_depth} levels") from None
        except ValueError as error:
            raise SchemaError("", "schema", f"is no JSON: {error}") from None
    tree = plain_tree(schema, limits)
    if not isinstance(tree, (dict, bool)):
        raise SchemaError("", "schema", "must be an object or a boolean")
    return tree


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same key twice")
    return members


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _auto_buffer_bytes(rules: list[Rule]) -> int:
    """The smallest power of two that holds 99 % of the fields, within its range."""
    sizes = sorted(_field_bytes(rule) for rule in rules)
    needed = sizes[max(0, ceil(len(sizes) * 0.99) - 1)]
    size = MIN_AUTO_BUFFER_BYTES
    while size < needed and size < MAX_AUTO_BUFFER_BYTES:
        size *= 2
    return size


def _field_bytes(rule: Rule) -> int:
    """A guess at the longest usual frame of a node."""
    if not rule.types & FieldType.STRING:
        return _HEAD_BYTES + 10
    if rule.enum_strings is not None:
        return _HEAD_BYTES + max(map(len, rule.enum_strings), default=0)
    if rule.max_length != UNBOUNDED:
        # Text of three bytes a character, as most scripts beyond Latin need.
        return _HEAD_BYTES + 3 * rule.max_length
    return _HEAD_BYTES + _OPEN_STRING_BYTES


def text_schema() -> Schema:
    """The schema of plain text: one string at the root, sent in parts."""
    return _TEXT


def raw_schema() -> Schema:
    """What an encoder without a schema obeys: any JSON value, the last of equal keys wins."""
    return _RAW


def _builtin(types: int, *, is_text: bool) -> Schema:
    node = FieldNode(0, 0, FieldStep.ROOT, "", 0, types, None, False)
    rule = Rule(types=types, declared_types=types)
    return Schema(
        hash=b"",
        canonical=b"",
        nodes=(node,),
        annotations=(),
        auto_buffer_bytes=MIN_AUTO_BUFFER_BYTES,
        caps={},
        rules=(rule,),
        is_text=is_text,
        is_raw=not is_text,
    )


_TEXT: Final = _builtin(FieldType.STRING, is_text=True)
_RAW: Final = _builtin(127, is_text=False)
