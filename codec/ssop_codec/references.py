"""Follows `$ref` inside one schema document: JSON Pointers, anchors, and resources that have an `$id`."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from .errors import SchemaError
from .keywords import LISTS, MAPS, SINGLE, Dialect, has_bare_reference

Place = tuple[Any, str]
"""A schema and its JSON Pointer."""


def escape(token: str) -> str:
    """A reference token of a JSON Pointer."""
    if "/" not in token and "~" not in token:
        return token
    return token.replace("~", "~0").replace("/", "~1")


def join(base: str, ref: str) -> tuple[str, str]:
    """The address that a reference names, without and with its fragment."""
    if ref.startswith("#"):
        # urljoin would lose a base that is a URN.
        return base, unquote(ref[1:])
    address, fragment = urldefrag(urljoin(base, ref) if base else ref)
    return address, unquote(fragment)


class Resolver:
    """Finds what references name. Built by one walk over all places where schemas can stand; `has_names` False: none
    of them has a name."""

    def __init__(self, root: Any, dialect: Dialect, *, has_names: bool) -> None:
        self.root = root
        self.dialect = dialect
        self.resources: dict[str, str] = {"": ""}
        self.anchors: dict[tuple[str, str], str] = {}
        self._bases: dict[str, str] = {"": ""}
        if has_names:
            self._walk(root)

    def _walk(self, root: Any) -> None:
        waiting: list[tuple[Any, str, str]] = [(root, "", "")]
        while waiting:
            schema, pointer, base = waiting.pop()
            if not isinstance(schema, dict):
                continue
            if not has_bare_reference(schema, self.dialect):
                base = self._note(schema, pointer, base)
            for keyword, value in schema.items():
                where = f"{pointer}/{escape(keyword)}"
                if keyword in MAPS and isinstance(value, dict):
                    waiting += [(inner, f"{where}/{escape(key)}", base) for key, inner in value.items()]
                elif isinstance(value, list) and (keyword in LISTS or keyword == "items"):
                    waiting += [(inner, f"{where}/{i}", base) for i, inner in enumerate(value)]
                elif keyword in SINGLE:
                    waiting.append((value, where, base))

    def _note(self, schema: dict[str, Any], pointer: str, base: str) -> str:
        """Keep what the schema is called; returns the base of what is below it."""
        said = schema.get("$id")
        if isinstance(said, str):
            address, fragment = join(base, said)
            if fragment:
                # In draft-07 a fragment alone is an anchor.
                self.anchors.setdefault((address, fragment), pointer)
            elif address != base:
                base = address
                self.resources.setdefault(address, pointer)
                self._bases[pointer] = address
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str) and self.dialect == "2020-12":
                self.anchors.setdefault((base, name), pointer)
        return base

    def base_of(self, pointer: str) -> str:
        """The base address of the references at a place."""
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    def resolve(self, ref: object, pointer: str) -> Place:
        """What `$ref` at `pointer` names. Raises SchemaError where that is not in this document."""
        if not isinstance(ref, str):
            raise SchemaError(pointer, "$ref", "must be a string")
        address, fragment = join(self.base_of(pointer), ref)
        start = self.resources.get(address)
        if start is None:
            raise SchemaError(pointer, "$ref", "only references inside the schema are followed")
        if fragment and not fragment.startswith("/"):
            found = self.anchors.get((address, fragment))
            if found is None:
                raise SchemaError(pointer, "$ref", "names nothing")
            return self.find(found, pointer)
        return self.find(start + fragment, pointer)

    def find(self, target: str, pointer: str) -> Place:
        """The schema at a JSON Pointer; `pointer` is that of the reference."""
        schema = self.root
        at = ""
        for raw in target.split("/")[1:]:
            token = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and token in schema:
                schema = schema[token]
            elif isinstance(schema, list) and token.isascii() and token.isdigit() and len(token) < 10:
                if int(token) >= len(schema):
                    raise SchemaError(pointer, "$ref", "names nothing")
                schema = schema[int(token)]
            else:
                raise SchemaError(pointer, "$ref", "names nothing")
            at = f"{at}/{escape(token)}"
        return schema, at
