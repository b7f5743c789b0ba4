"""Makes the checks that the judge runs: one for each schema that is reached, however often it is used.

Checks refer to each other by number, so that recursion needs no expansion and no union multiplies.
"""

from __future__ import annotations

from typing import Any

from . import keywords
from ._pattern import Pattern
from .constants import ALL_TYPES, FieldType
from .errors import SchemaError
from .facts import Facts, Residual
from .frozen import freeze
from .pattern import compile_pattern
from .reading import Reader
from .references import Place
from .rules import ALWAYS, NEVER, UNBOUNDED, Check, Group, Rule
from .scalars import scalar_rule

_OPEN, _DONE = 1, 2
_ANY = Rule()
_ABOUT_OBJECTS = keywords.ABOUT_OBJECTS | {"propertyNames", "dependentRequired", "dependencies"}
_ABOUT_ARRAYS = keywords.ABOUT_ARRAYS | {"contains", "uniqueItems"}


class CheckBuilder:
    """Numbers checks in the order in which they are met."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.checks: list[Check] = []
        self.patterns: dict[str, Pattern] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._waiting: list[tuple[int, dict[str, Any] | bool, str, bool]] = []

    def root(self, residual: Residual) -> int:
        """The check of what the rules of a node leave over."""
        pointer = residual.pointer
        known = (pointer, residual.keyword)
        number = self._numbers.get(known)
        if number is None:
            schema = keywords.effective(self.reader.given[pointer], self.reader.dialect)
            kept = (residual.keyword, *keywords.COMPANIONS.get(residual.keyword, ()))
            # The named properties themselves are judged by the rules.
            part = {key: schema[key] for key in kept if key in schema}
            number = self._numbers[known] = self._reserve(part, pointer, is_part=True)
        self._fill_waiting()
        return number

    def whole(self, place: Place) -> int:
        """The check of all that a schema says."""
        number = self.check(place)
        self._fill_waiting()
        return number

    def check(self, place: Place) -> int:
        """The number of the check of a whole schema; it is filled later."""
        schema, pointer = place
        if schema is True or schema == {}:
            return ALWAYS
        if schema is False:
            return NEVER
        number = self._numbers.get((pointer, ""))
        if number is None:
            number = self._numbers[pointer, ""] = self._reserve(self.reader.schema_at(place), pointer, is_part=False)
        return number

    def _reserve(self, schema: dict[str, Any] | bool, pointer: str, *, is_part: bool) -> int:
        self.checks.append(Check(pointer, _ANY, 0))
        self._waiting.append((len(self.checks) - 1, schema, pointer, is_part))
        return len(self.checks) - 1

    def _fill_waiting(self) -> None:
        first = len(self.checks)
        while self._waiting:
            number, schema, pointer, is_part = self._waiting.pop()
            first = min(first, number)
            if isinstance(schema, dict):
                self._fill(self.checks[number], schema, pointer, is_part)
        self._refuse_loops(first)

    def _refuse_loops(self, first: int) -> None:
        """A check that leads to itself on the same value would never end."""
        state: dict[int, int] = {}
        for start in range(first, len(self.checks)):
            if start in state or not self.checks[start].groups:
                continue
            stack = [(start, iter(self._same_value(start)))]
            state[start] = _OPEN
            while stack:
                number, kids = stack[-1]
                kid = next(kids, None)
                if kid is None:
                    state[number] = _DONE
                    stack.pop()
                elif kid < first:
                    # Looked at before, and all that it leads to.
                    continue
                elif kid not in state:
                    state[kid] = _OPEN
                    stack.append((kid, iter(self._same_value(kid))))
                    if len(stack) > self.reader.limits.max_depth * 2:
                        cap = self.reader.limits.max_depth
                        raise SchemaError(self.checks[kid].pointer, "max_depth", f"more than {cap} levels of unions")
                elif state[kid] == _OPEN:
                    check = self.checks[kid]
                    keyword = check.groups[0].keyword
                    where = f"{check.pointer}/{keyword}"
                    raise SchemaError(where, keyword, "refers to itself without a value in between")

    def _same_value(self, number: int) -> list[int]:
        return [kid for group in self.checks[number].groups for kid in group.kids if kid >= 0]

    # -- the keywords of one schema ------------------------------------------------------------------------------

    def _fill(self, check: Check, schema: dict[str, Any], pointer: str, is_part: bool) -> None:
        facts = self.reader.plain(schema, pointer) if is_part else self.reader.plain_of(schema, pointer)
        check.rule = scalar_rule(facts, pointer)
        self._fill_scalars(check, schema, pointer, facts)
        if not _ABOUT_OBJECTS.isdisjoint(schema):
            self._fill_object(check, schema, pointer, is_part)
        if not _ABOUT_ARRAYS.isdisjoint(schema):
            self._fill_array(check, schema, pointer)
        if not keywords.GROUPED.isdisjoint(schema):
            check.groups = tuple(self._groups(schema, pointer))
            for group in check.groups:
                if group.kind == "when":
                    check.keys.setdefault(group.key, ALWAYS)
        check.settled = self._settled(check)

    def _fill_scalars(self, check: Check, schema: dict[str, Any], pointer: str, facts: Facts) -> None:
        rule = check.rule
        rule.required = facts.object.required
        rule.min_properties, rule.max_properties = facts.object.min_properties, facts.object.max_properties
        rule.min_items, rule.max_items = facts.array.min_items, facts.array.max_items
        members: frozenset[object] | None = None
        for keyword in ("enum", "const"):
            if keyword in schema:
                said = self.reader.members(schema[keyword], keyword, f"{pointer}/{keyword}")
                frozen = frozenset(freeze(member) for member in said if isinstance(member, (dict, list)))
                members = frozen if members is None else members & frozen
        check.members = members

    def _pattern(self, text: object, pointer: str, keyword: str) -> str:
        if not isinstance(text, str):
            raise SchemaError(pointer, keyword, "must be a string")
        if text not in self.patterns:
            self.patterns[text] = compile_pattern(text, limits=self.reader.limits, pointer=pointer)
        return text

    def _fill_object(self, check: Check, schema: dict[str, Any], pointer: str, is_part: bool) -> None:
        reader = self.reader
        named = reader.schemas(schema, "properties", pointer)
        check.keys = {key.encode(): ALWAYS if is_part else self.check(place) for key, place in named.items()}
        check.properties = frozenset(check.keys)
        for name in named:
            reader.check_key(name, f"{pointer}/properties", "properties")
        check.additional = self.check((schema.get("additionalProperties", True), f"{pointer}/additionalProperties"))
        check.patterns = tuple(
            (self._pattern(text, place[1], "patternProperties"), self.check(place))
            for text, place in reader.schemas(schema, "patternProperties", pointer).items()
        )
        if "propertyNames" in schema:
            check.names = self.check((schema["propertyNames"], f"{pointer}/propertyNames"))
        required = {name.encode(): None for name in reader.names(schema, pointer)}
        dependents = reader.schemas(schema, "dependentRequired", pointer)
        dependents |= {
            k: p for k, p in reader.schemas(schema, "dependencies", pointer).items() if isinstance(p[0], list)
        }
        check.dependents = tuple(
            (key.encode(), tuple(n.encode() for n in reader.name_list(said, where, "dependentRequired")))
            for key, (said, where) in dependents.items()
        )
        check.required = tuple(required)
        for key, needed in check.dependents:
            for text in (key, *needed):
                check.keys.setdefault(text, ALWAYS)
        for text in required:
            check.keys.setdefault(text, ALWAYS)
        reader.count("properties", len(check.keys), pointer, "max_properties")

    def _fill_array(self, check: Check, schema: dict[str, Any], pointer: str) -> None:
        prefix, rest = self.reader.tuple_items(schema, pointer)
        check.prefix = tuple(self.check(place) for place in prefix)
        check.items = self.check(rest)
        if "contains" in schema:
            size = self.reader.size
            check.contains = self.check((schema["contains"], f"{pointer}/contains"))
            check.min_contains = size(schema, "minContains", pointer, 1)
            check.max_contains = size(schema, "maxContains", pointer, UNBOUNDED)
            check.contains_keyword = "minContains" if "minContains" in schema else "contains"
        unique = schema.get("uniqueItems", False)
        if not isinstance(unique, bool):
            raise SchemaError(f"{pointer}/uniqueItems", "uniqueItems", "must be true or false")
        check.is_unique = unique

    def _groups(self, schema: dict[str, Any], pointer: str) -> list[Group]:
        groups = []
        for keyword, kind in (("$ref", "all"), ("allOf", "all"), ("anyOf", "any"), ("oneOf", "one")):
            if keyword in schema:
                kids = [self.check(place) for place in self.reader.same_value(schema, pointer, keyword)]
                groups.append(Group(kind, keyword, tuple(kids)))
        if "not" in schema:
            groups.append(Group("not", "not", (self.check((schema["not"], f"{pointer}/not")),)))
        if "if" in schema and ("then" in schema or "else" in schema):
            kids = [self.check((schema.get(k, True), f"{pointer}/{k}")) for k in ("if", "then", "else")]
            groups.append(Group("if", "if", tuple(kids)))
        for keyword in ("dependentSchemas", "dependencies"):
            for key, place in self.reader.schemas(schema, keyword, pointer).items():
                if not isinstance(place[0], list):
                    groups.append(Group("when", keyword, (self.check(place),), key.encode()))
        return groups

    def _settled(self, check: Check) -> int:
        """Types about which the own keywords say nothing that is judged later than at the first byte."""
        rule = check.rule
        settled = FieldType.NULL | FieldType.BOOLEAN
        if (
            rule.enum_strings is None
            and not rule.min_length
            and rule.max_length == UNBOUNDED
            and not rule.string_format
            and rule.pattern is None
        ):
            settled |= FieldType.STRING
        bounds = (rule.minimum, rule.maximum, rule.exclusive_minimum, rule.exclusive_maximum, rule.multiple_of)
        if rule.enum_numbers is None and all(bound is None for bound in bounds) and rule.types & FieldType.NUMBER:
            settled |= FieldType.INTEGER | FieldType.NUMBER
        if (
            check.members is None
            and all(kid == ALWAYS for kid in check.keys.values())
            and check.additional == check.names == ALWAYS
            and not check.patterns
            and not check.dependents
            and not rule.min_properties
            and rule.max_properties == UNBOUNDED
        ):
            settled |= FieldType.OBJECT
        if (
            check.members is None
            and not check.prefix
            and check.items == check.contains == ALWAYS
            and not check.min_contains
            and not check.is_unique
            and not rule.min_items
            and rule.max_items == UNBOUNDED
        ):
            settled |= FieldType.ARRAY
        return int(settled & ALL_TYPES)
