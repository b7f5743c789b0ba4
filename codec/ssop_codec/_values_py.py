"""Values and containers, for the slow encoder. Product code never imports it."""

from __future__ import annotations

from collections.abc import Generator

from . import wire
from ._numbers_py import read_literal, read_number
from ._reader_py import ANY, BLANKS, DIGITS, BrokenError, D, Place, Reading, SlowReader
from ._strings_py import allowed_names, read_key, read_string
from .constants import FieldType, FrameKind
from .references import escape
from .rules import FORBIDDEN, UNTYPED, Rule
from .wire import PathStep, RefStep


def read_token(reader: SlowReader, place: Place) -> Generator[None, int, int]:
    """The next byte that is no blank; `place` is named where there are too many."""
    blanks = 0
    while True:
        byte = yield from reader.next_byte()
        if byte not in BLANKS:
            return byte
        blanks += 1
        if blanks > reader.limits.max_whitespace_run_bytes:
            raise BrokenError("limit", reader.at, place, D.BLANKS)


def read_value(  # noqa: C901, PLR0912  # one branch per first byte
    reader: SlowReader, byte: int, place: Place, detail: int = D.VALUE
) -> Reading:
    """A value from its first byte on."""
    rule = place.rule
    start = reader.at
    if byte == 0x22:
        wanted = int(FieldType.STRING)
    elif byte == 0x7B:
        wanted = int(FieldType.OBJECT)
    elif byte == 0x5B:
        wanted = int(FieldType.ARRAY)
    elif byte in DIGITS or byte == 0x2D:
        wanted = FieldType.INTEGER | FieldType.NUMBER
    elif byte in b"tf":
        wanted = int(FieldType.BOOLEAN)
    elif byte == 0x6E:
        wanted = int(FieldType.NULL)
    else:
        raise BrokenError("syntax", start, place, detail)
    if place.is_forbidden:
        raise BrokenError("items", start, reader.innermost[-1])
    if not rule.types & wanted:
        raise BrokenError(rule.enum_keyword if rule.declared_types & wanted else "type", start, place)
    reader.obey(reader.judge.begin(rule, int(wanted), byte, place.pointer, start), start)
    if byte == 0x22:
        yield from read_string(reader, place)
    elif byte in {0x7B, 0x5B}:
        yield from _read_container(reader, place, is_array=byte == 0x5B)
        return
    elif byte in b"tfn":
        yield from read_literal(reader, byte, place)
    else:
        yield from read_number(reader, byte, place)
        # The byte after a number was read, too.
        reader.span(start, reader.at)
        return
    reader.span(start, reader.offset)


def _read_container(reader: SlowReader, place: Place, *, is_array: bool) -> Reading:
    if len(reader.innermost) == reader.limits.max_depth:
        raise BrokenError("limit", reader.at, place, D.DEPTH)
    rule = place.rule
    path = place.path
    node = place.node
    at = rule.array_at if is_array else rule.object_at
    if place.rule is not ANY and reader.schema.rules[at] is not rule:
        rule = reader.schema.rules[at]
        path = (*path, RefStep(node))
        node = at
        if len(wire.path_steps(path)) > reader.buffer_bytes:
            raise BrokenError("limit", reader.at, place, D.BUFFER)
    inner = Place(rule, node, path, place.pointer, place.pointer_ends, rule)
    # What is wrong with the container itself is told with its own structure.
    reader.innermost.append(inner)
    if is_array:
        size = yield from _read_items(reader, inner)
    else:
        size = yield from _read_members(reader, inner)
    start = reader.judge.open[-1].start
    reader.obey(reader.judge.end(bytes(reader.read[start : reader.offset])), reader.at)
    closing = Place(place.rule, place.node, place.path, place.pointer, place.pointer_ends, rule)
    reader.send(FrameKind.CLOSE, closing, wire.size_content(size, is_array=is_array), reader.at)
    reader.innermost.pop()


def _child(reader: SlowReader, around: Place, rule: int, step: PathStep | None, token: str | None) -> Place:
    """The place below `around`; `token` None: a key of the model."""
    path = around.path if step is None else (*around.path, step)
    pointer_ends = around.pointer_ends or token is None
    pointer = around.pointer if pointer_ends else f"{around.pointer}/{escape(token or '')}"
    if rule == UNTYPED:
        return Place(ANY, around.node, path, pointer, pointer_ends, around.rule)
    return Place(reader.schema.rules[rule], rule, path, pointer, pointer_ends, around.rule)


def _item(reader: SlowReader, around: Place, index: int) -> Place:
    rule = around.rule
    if index < len(rule.prefix):
        return _child(reader, around, rule.prefix[index], None, str(index))
    if rule.items == FORBIDDEN:
        return Place(Rule(), 0, around.path, around.pointer, around.pointer_ends, rule, is_forbidden=True)
    place = _child(reader, around, rule.items, index, str(index))
    if len(wire.path_steps(place.path)) > reader.buffer_bytes:
        raise BrokenError("limit", reader.at, place, D.BUFFER)
    return place


def _read_items(reader: SlowReader, around: Place) -> Generator[None, int, int]:
    rule = around.rule
    item = _item(reader, around, 0)
    index_place = _child(reader, around, UNTYPED, None, "0")
    byte = yield from read_token(reader, index_place)
    size = 0
    if byte != 0x5D:
        if rule.max_items == 0:
            raise BrokenError("maxItems", reader.at, around)
        yield from read_value(reader, byte, _named(item, index_place), D.VALUE_OR_END)
        size = 1
        while (byte := (yield from read_token(reader, around))) != 0x5D:
            if byte != 0x2C:
                raise BrokenError("syntax", reader.at, around, D.AFTER_ITEM)
            if size == rule.max_items:
                raise BrokenError("maxItems", reader.at, around)
            item = _item(reader, around, size)
            if item.is_forbidden:
                raise BrokenError("items", reader.at, around)
            _refuse_empty(reader, item)
            reader.obey(reader.judge.comma(item.pointer), reader.at)
            index_place = _child(reader, around, UNTYPED, None, str(size))
            byte = yield from read_token(reader, index_place)
            yield from read_value(reader, byte, _named(item, index_place))
            size += 1
    if size < rule.min_items:
        raise BrokenError("minItems", reader.at, around)
    return size


def _named(item: Place, index_place: Place) -> Place:
    """A forbidden item has a pointer of its own when its first byte is no value at all."""
    if not item.is_forbidden:
        return item
    return Place(
        item.rule,
        item.node,
        item.path,
        index_place.pointer,
        index_place.pointer_ends,
        item.structure,
        is_forbidden=True,
    )


def _read_members(reader: SlowReader, around: Place) -> Generator[None, int, int]:  # the grammar, in order
    rule = around.rule
    seen: set[bytes] = set()
    size = 0
    byte = yield from read_token(reader, around)
    if byte != 0x7D:
        detail = D.KEY_OR_END
        while True:
            if byte != 0x22:
                raise BrokenError("syntax", reader.at, around, detail)
            _check_room(reader, rule, size, around)
            key = yield from read_key(reader, around, seen)
            place = _member(reader, around, key, seen)
            if (yield from read_token(reader, around)) != 0x3A:
                raise BrokenError("syntax", reader.at, place, D.COLON)
            yield from read_value(reader, (yield from read_token(reader, place)), place)
            size += 1
            byte = yield from read_token(reader, around)
            if byte == 0x7D:
                break
            if byte != 0x2C:
                raise BrokenError("syntax", reader.at, around, D.AFTER_MEMBER)
            _check_room(reader, rule, size, around)
            reader.obey(reader.judge.comma(""), reader.at)
            detail = D.KEY
            byte = yield from read_token(reader, around)
    missing = [n for n in rule.properties if n in rule.required and n.encode() not in seen]
    if missing:
        raise BrokenError("required", reader.at, around, D.NONE, *missing)
    if size < rule.min_properties:
        raise BrokenError("minProperties", reader.at, around)
    return size


def _check_room(reader: SlowReader, rule: Rule, size: int, around: Place) -> None:
    """Whether one more key can stand in the object."""
    if size == rule.max_properties:
        raise BrokenError("maxProperties", reader.at, around)
    if rule.additional == FORBIDDEN and size == len(allowed_names(reader, around)):
        raise BrokenError("additionalProperties", reader.at, around)


def _member(reader: SlowReader, around: Place, key: bytes, seen: set[bytes]) -> Place:
    rule = around.rule
    name = key.decode()
    if name in rule.properties:
        if key in seen:
            raise BrokenError("duplicateKey", reader.at, around)
        seen.add(key)
        place = _child(reader, around, rule.properties[name], None, name)
        _refuse_empty(reader, place)
        reader.obey(reader.judge.end_key(place.pointer), reader.at)
        return place
    if rule.additional == FORBIDDEN:
        raise BrokenError("additionalProperties", reader.at, around)
    if not reader.schema.is_raw:
        if key in seen:
            raise BrokenError("duplicateKey", reader.at, around)
        unnamed = sum(other.decode() not in rule.properties for other in seen)
        if unnamed >= reader.limits.max_object_keys:
            raise BrokenError("limit", reader.at, around, D.OBJECT_KEYS)
        seen.add(key)
    place = _child(reader, around, rule.additional, name, None)
    if len(wire.path_steps(place.path)) > reader.buffer_bytes:
        raise BrokenError("limit", reader.at, around, D.BUFFER)
    _refuse_empty(reader, place)
    reader.obey(reader.judge.end_key(place.pointer), reader.at)
    return place


def _refuse_empty(reader: SlowReader, place: Place) -> None:
    """Where a value has to come that no schema allows."""
    rule = place.rule
    if not rule.types:
        raise BrokenError(rule.enum_keyword if rule.declared_types else "type", reader.at, place)
