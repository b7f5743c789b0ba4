"""The judge written for the reader, not for the machine: it keeps the values and weighs them anew after each byte.

The oracle that `_judge` is tested against. Product code never imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from ._pattern_py import open_points, slow_pattern
from .checks import broken_number_rule, keeps_format
from .constants import ALL_TYPES, FieldType
from .frozen import freeze_text
from .number_prefix import broken_by_prefix
from .pattern_threads import State
from .rules import ALWAYS, NEVER, UNBOUNDED, Check, Group, Rule, Schema

_NUMERIC = int(FieldType.INTEGER | FieldType.NUMBER)
_CONTAINERS = int(FieldType.OBJECT | FieldType.ARRAY)
_NOTHING = Check("", Rule(types=0, declared_types=0), 0)
Points = tuple[tuple[int, int], ...]


class Status(IntEnum):
    """What is known of a check."""

    OPEN = 0
    KEPT = 1
    FAILED = 2


@dataclass(eq=False)
class Value:
    """A value, as far as it came."""

    types: int
    first: int
    pointer: str
    start: int
    text: bytearray = field(default_factory=bytearray)
    """Of a string unescaped, of a number as it stands."""
    points: Points = ()
    """What the code point can be whose escape is open."""
    whole: bytes = b""
    """The JSON text, once it has ended."""
    items: list[Value] = field(default_factory=list)
    keys: list[Value] = field(default_factory=list)
    """Of an object, each a string."""
    members: list[Value] = field(default_factory=list)
    """Values of the keys; the last key may lack its own."""
    roots: tuple[int, ...] = ()
    has_ended: bool = False
    next_pointer: str | None = None
    """Of the member that has to come now."""


@dataclass(frozen=True)
class Finding:
    """What a value breaks."""

    rule: str
    check: Check
    value: Value


class SlowJudge:
    """Judges the values of one document."""

    def __init__(self, schema: Schema) -> None:
        self.checks = schema.checks
        self.open: list[Value] = []
        self._known: dict[tuple[int, int], Status] = {}

    # -- events: each returns what is broken now ------------------------------------------------------------------

    def begin(self, rule: Rule, types: int, first: int, pointer: str, start: int) -> Finding | None:
        """A value begins."""
        roots = tuple(check for mask, check in rule.roots if mask & types)
        value = Value(types, first, pointer, start, roots=roots)
        if self.open:
            around = self.open[-1]
            around.next_pointer = None
            (around.items if around.types == FieldType.ARRAY else around.members).append(value)
        self.open.append(value)
        return self.find()

    def take(self, byte: int) -> Finding | None:
        """A byte of the open string, unescaped, or of the open number."""
        self.open[-1].points = ()
        self.open[-1].text.append(byte)
        return self.find()

    def becomes(self, points: Points, *, is_key: bool) -> Finding | None:
        """What the code point can be whose escape was read in part."""
        value = self.open[-1].keys[-1] if is_key else self.open[-1]
        value.points = points
        return self.find()

    def comma(self, next_pointer: str) -> Finding | None:
        """Another member has to come; `next_pointer` is that of an item."""
        self.open[-1].next_pointer = next_pointer
        return self.find()

    def begin_key(self) -> Finding | None:
        """The quote of a key."""
        around = self.open[-1]
        around.next_pointer = None
        around.keys.append(Value(FieldType.STRING, 0x22, around.pointer, 0))
        return self.find()

    def take_key(self, byte: int) -> Finding | None:
        """A byte of the open key, unescaped."""
        self.open[-1].keys[-1].points = ()
        self.open[-1].keys[-1].text.append(byte)
        return self.find()

    def end_key(self, pointer: str) -> Finding | None:
        """The closing quote of a key: judged as a name, then as that of a member. `pointer` is that of its value."""
        key = self.open[-1].keys[-1]
        self.open[-1].next_pointer = pointer
        key.has_ended = True
        return self.find(closing=key) or self.find()

    def end(self, whole: bytes, text: bytes | None = None) -> Finding | None:
        """The open value is whole."""
        value = self.open[-1]
        value.whole = whole
        if text is not None:
            value.text[:] = text
        value.has_ended = True
        found = self.find()
        self.open.pop()
        return found

    # -- what is known -----------------------------------------------------------------------------------------------

    def find(self, closing: Value | None = None) -> Finding | None:
        """The first root that has failed, of the innermost value first."""
        self._known.clear()
        self.closing = closing
        for value in reversed(self.open):
            for root in value.roots:
                if self.status(root, value) == Status.FAILED:
                    return self._blame(root, value)
        return None

    def status(self, number: int, value: Value) -> Status:
        """What is known of a check of a value."""
        if number == ALWAYS:
            return Status.KEPT
        if number == NEVER:
            return Status.FAILED
        known = self._known.get((number, id(value)))
        if known is None:
            check = self.checks[number]
            own = self._own(check, value)
            found = [own if isinstance(own, Status) else Status.FAILED]
            found += [self._group(group, value) for group in check.groups]
            if Status.FAILED in found:
                known = Status.FAILED
            else:
                known = Status.KEPT if set(found) == {Status.KEPT} else Status.OPEN
            self._known[number, id(value)] = known
        return known

    def _group(  # noqa: PLR0911  # one line per kind
        self, group: Group, value: Value
    ) -> Status:
        kids = [self.status(kid, value) for kid in group.kids]
        if group.kind == "not":
            return Status((0, 2, 1)[kids[0]])
        if group.kind == "if":
            condition, then, otherwise = kids
            if condition != Status.OPEN:
                return then if condition == Status.KEPT else otherwise
            return then if then == otherwise else Status.OPEN
        if group.kind == "when":
            if group.key in (bytes(key.text) for key in self._whole_keys(value)):
                return kids[0]
            is_over = value.has_ended or value.types != FieldType.OBJECT
            return Status.KEPT if is_over or kids[0] == Status.KEPT else Status.OPEN
        kept, failed = kids.count(Status.KEPT), kids.count(Status.FAILED)
        if group.kind == "all":
            return Status.FAILED if failed else Status.KEPT if kept == len(kids) else Status.OPEN
        if failed == len(kids):
            return Status.FAILED
        if group.kind == "any":
            return Status.KEPT if kept else Status.OPEN
        if kept > 1:
            return Status.FAILED
        return Status.KEPT if kept and failed == len(kids) - 1 else Status.OPEN

    def _blame(self, number: int, value: Value) -> Finding:
        check = self.checks[number] if number != NEVER else _NOTHING
        own = self._own(check, value)
        if isinstance(own, tuple):
            return self._blame(*own)
        if isinstance(own, str):
            return Finding(own, check, value)
        group = next(g for g in check.groups if self._group(g, value) == Status.FAILED)
        if group.kind == "all":
            kid = next(kid for kid in group.kids if self.status(kid, value) == Status.FAILED)
            if kid != NEVER:
                return self._blame(kid, value)
        rule = group.keyword
        if group.kind == "if":
            rule = ("if", "then", "else")[self.status(group.kids[0], value)]
        return Finding(rule, check, value)

    def _own(  # one branch per type
        self, check: Check, value: Value
    ) -> Status | str | tuple[int, Value]:
        """What the keywords of the check itself say: a status, the keyword that is broken, or the check of a member
        that is, and the member."""
        rule = check.rule
        if not rule.types & value.types:
            return rule.enum_keyword if rule.declared_types & value.types else "type"
        if value.types == FieldType.BOOLEAN and (value.first == 0x74) not in rule.bools:
            return rule.enum_keyword
        if value.types == FieldType.STRING:
            found: str | tuple[int, Value] = self._string(check, value)
        elif value.types == _NUMERIC:
            found = _number(rule, value)
        elif value.types == FieldType.OBJECT:
            found = self._object(check, value)
        elif value.types == FieldType.ARRAY:
            found = self._array(check, value)
        else:
            found = ""
        if found:
            return found
        if value.has_ended or (check.settled & value.types and not self._missing(check, value)):
            return Status.KEPT
        return Status.OPEN

    def _missing(self, check: Check, value: Value) -> bool:
        keys = {bytes(key.text) for key in self._whole_keys(value)}
        return value.types == FieldType.OBJECT and not set(check.required) <= keys

    def _string(  # noqa: PLR0911  # one line per keyword, in order
        self, check: Check, value: Value
    ) -> str:
        rule = check.rule
        text = bytes(value.text)
        members = rule.enum_strings
        if members is not None and not any(continues(member, text, value.points) for member in members):
            return rule.enum_keyword
        chars = sum(byte & 0xC0 != 0x80 for byte in text) + bool(value.points)
        if rule.max_length != UNBOUNDED and chars > rule.max_length:
            return "maxLength"
        shape = rule.pattern or rule.shape
        keyword = "pattern" if rule.pattern else "format"
        state = _alive(shape.text, text, value.points) if shape else None
        if shape and state is None:
            return keyword
        if not value.has_ended:
            return ""
        if members is not None and text not in members:
            return rule.enum_keyword
        if len(text.decode()) < rule.min_length:
            return "minLength"
        if shape and state is not None and not slow_pattern(shape.text).accepts(state):
            return keyword
        return "format" if rule.string_format and not keeps_format(rule, text) else ""

    def _whole_keys(self, value: Value) -> Iterator[Value]:
        return (key for key in value.keys if key.has_ended and key is not self.closing)

    def _is_never(self, kid: int) -> bool:
        """Whether no value keeps a check."""
        return kid == NEVER or (kid >= 0 and not self.checks[kid].rule.types)

    def _member_checks(self, check: Check, key: bytes) -> list[int]:
        kids = [check.keys[key]] if key in check.properties else []
        matched = [kid for text, kid in check.patterns if slow_pattern(text).search(key.decode())]
        if key not in check.properties and not matched:
            return [check.additional]
        return kids + matched

    def _can_stand(self, check: Check, seen: set[bytes], text: bytes, points: Points) -> bool:
        """Whether a key that begins so may come, where other keys may not."""
        return any(
            name not in seen and not self._is_never(check.keys[name]) and continues(name, text, points)
            for name in check.properties
        ) or any(
            not self._is_never(kid) and _alive(pattern, text, points) is not None for pattern, kid in check.patterns
        )

    def _has_stranger(self, check: Check, value: Value) -> bool:
        """Whether a key stands that may not, is read that can become none that may, or has to come where none can."""
        for key in self._whole_keys(value):
            is_named = bytes(key.text) in check.properties
            if not is_named and not any(slow_pattern(text).search(key.text.decode()) for text, _ in check.patterns):
                return True
        seen = {bytes(key.text) for key in value.keys[: len(value.members)]}
        if len(value.keys) > len(value.members):
            key = value.keys[-1]
            return not key.has_ended and not self._can_stand(check, seen, bytes(key.text), key.points)
        return value.next_pointer is not None and not self._can_stand(check, seen, b"", ())

    def _object(  # noqa: C901, PLR0911, PLR0912  # one line per keyword, in order
        self, check: Check, value: Value
    ) -> str | tuple[int, Value]:
        whole = list(self._whole_keys(value))
        most = check.rule.max_properties
        is_full = value.next_pointer is not None and len(value.members) == len(value.keys) == most
        if most != UNBOUNDED and (len(whole) > most or is_full):
            return "maxProperties"
        if check.additional == NEVER and self._has_stranger(check, value):
            return "additionalProperties"
        if check.names != ALWAYS and any(self.status(check.names, key) == Status.FAILED for key in value.keys):
            return "propertyNames"
        for key, member in zip(value.keys, value.members, strict=False):
            for kid in self._member_checks(check, bytes(key.text)):
                if self.status(kid, member) == Status.FAILED:
                    return kid, member
        if len(whole) > len(value.members):
            for kid in self._member_checks(check, bytes(whole[-1].text)):
                if self._is_never(kid):
                    return kid, Value(ALL_TYPES, 0, value.next_pointer or "", 0)
        if not value.has_ended:
            return ""
        keys = {bytes(key.text) for key in whole}
        if self._missing(check, value):
            return "required"
        if len(keys) < check.rule.min_properties:
            return "minProperties"
        if any(key in keys and not keys.issuperset(needed) for key, needed in check.dependents):
            return "dependentRequired"
        return self._whole(check, value)

    def _array(  # noqa: C901, PLR0911  # one line per keyword, in order
        self, check: Check, value: Value
    ) -> str | tuple[int, Value]:
        rule = check.rule
        count = len(value.items) + (value.next_pointer is not None)
        if rule.max_items != UNBOUNDED and count > rule.max_items:
            return "maxItems"
        for index, item in enumerate(value.items):
            kid = check.prefix[index] if index < len(check.prefix) else check.items
            if self.status(kid, item) == Status.FAILED:
                return kid, item
        if value.next_pointer is not None:
            kid = check.prefix[count - 1] if count <= len(check.prefix) else check.items
            if self._is_never(kid):
                return kid, Value(ALL_TYPES, 0, value.next_pointer, 0)
        ended = [item for item in value.items if item.has_ended]
        matched = sum(self.status(check.contains, item) == Status.KEPT for item in ended)
        if check.max_contains != UNBOUNDED and matched > check.max_contains:
            return "maxContains"
        if check.is_unique and len({freeze_text(item.whole) for item in ended}) < len(ended):
            return "uniqueItems"
        if not value.has_ended:
            return ""
        if len(value.items) < rule.min_items:
            return "minItems"
        if matched < check.min_contains:
            return check.contains_keyword
        return self._whole(check, value)

    def _whole(self, check: Check, value: Value) -> str:
        if check.members is None or freeze_text(value.whole) in check.members:
            return ""
        return check.rule.enum_keyword


def _number(rule: Rule, value: Value) -> str:
    if value.has_ended:
        return broken_number_rule(rule, bytes(value.text))
    return broken_by_prefix(rule, bytes(value.text)) if value.text else ""


def continues(member: bytes, text: bytes, points: Points) -> bool:
    """Whether a text of a list begins so. `points`: what its next code point can be, if one is open."""
    if not member.startswith(text) or not points:
        return member.startswith(text)
    rest = member[len(text) :].decode(errors="ignore")
    return bool(rest) and any(low <= ord(rest[0]) <= high for low, high in points)


def _alive(pattern: str, text: bytes, points: Points) -> State | int | None:
    """The state of a pattern behind a text, None where no text that begins so matches."""
    known = slow_pattern(pattern)
    whole = text.decode(errors="ignore")
    state = known.start()
    for point in whole:
        state = known.step(state, ord(point))
    points = points or open_points(text[len(whole.encode()) :])
    if known.is_dead(state) or (points and not any(known.can_take(state, low, high) for low, high in points)):
        return None
    return state
