"""All of several sets of facts at once: `allOf`, `$ref` with siblings, and properties that two schemas name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import lcm
from typing import Final

from .constants import FieldType
from .errors import SchemaError
from .facts import NUMERIC, ArrayFacts, Facts, NumberFacts, ObjectFacts, Residual, StringFacts, places
from .limits import Limits
from .number import Number, compare, is_integer, normal
from .rules import UNBOUNDED

_MAX_EXPONENT_GAP: Final = 400


def conjoin(parts: Sequence[Facts], pointer: str, limits: Limits) -> Facts:
    """The facts of a value that has to keep all of `parts`, of which there is one at least. Raises SchemaError where
    together they name too many properties."""
    return reduce(lambda a, b: _both(a, b, pointer, limits), parts)


def _both(a: Facts, b: Facts, pointer: str, limits: Limits) -> Facts:
    residuals = list(dict.fromkeys((*a.residuals, *b.residuals)))
    string = _strings(a.string, b.string, residuals)
    number = _numbers(a.number, b.number, pointer)
    bools = a.bools & b.bools
    types = a.types & b.types
    if string.enum is not None and not string.enum:
        types &= ~FieldType.STRING
    if number.enum is not None:
        if not number.enum:
            types &= ~NUMERIC
        elif all(is_integer(member) for member in number.enum):
            types &= ~FieldType.NUMBER
    if not bools:
        types &= ~FieldType.BOOLEAN
    return Facts(
        types=int(types),
        declared_types=a.declared_types & b.declared_types,
        enum_keyword=a.enum_keyword or b.enum_keyword,
        string=string,
        number=number,
        bools=bools,
        object=_objects(a.object, b.object, pointer, limits),
        array=_arrays(a.array, b.array),
        residuals=tuple(r for r in residuals if r.types & types),
    )


def _least(a: int, b: int) -> int:
    return max(a, b) if UNBOUNDED in (a, b) else min(a, b)


def _strings(a: StringFacts, b: StringFacts, residuals: list[Residual]) -> StringFacts:
    if a.enum is not None or b.enum is not None:
        if a.enum is not None and b.enum is not None:
            other = frozenset(b.enum)
            return StringFacts(enum=tuple(m for m in a.enum if m in other))
        members, bounds = (a.enum, b) if a.enum is not None else (b.enum, a)
        return StringFacts(enum=tuple(m for m in members or () if bounds.allows(m)))
    if a.format and b.format and a.format != b.format:
        residuals.append(Residual(FieldType.STRING, b.format_at, "format"))
    if a.pattern and b.pattern and a.pattern != b.pattern:
        residuals.append(Residual(FieldType.STRING, b.pattern_at, "pattern"))
    kept = a if a.format else b
    matched = a if a.pattern else b
    return StringFacts(
        min_length=max(a.min_length, b.min_length),
        max_length=_least(a.max_length, b.max_length),
        format=kept.format,
        format_at=kept.format_at,
        pattern=matched.pattern,
        pattern_at=matched.pattern_at,
    )


def _numbers(a: NumberFacts, b: NumberFacts, pointer: str) -> NumberFacts:
    is_double = a.is_double or b.is_double
    if a.enum is not None or b.enum is not None:
        kept: tuple[Number, ...]
        if a.enum is not None and b.enum is not None:
            other = frozenset(b.enum)
            kept = tuple(m for m in a.enum if m in other)
        else:
            members, bounds = (a.enum, b) if a.enum is not None else (b.enum, a)
            kept = tuple(m for m in members or () if bounds.allows(m))
        return NumberFacts(enum=kept, is_strict=a.is_strict or b.is_strict, is_double=is_double)
    return NumberFacts(
        integer_only=a.integer_only or b.integer_only,
        is_strict=a.is_strict or b.is_strict,
        is_double=is_double,
        minimum=_bound(a.minimum, b.minimum, 1),
        maximum=_bound(a.maximum, b.maximum, -1),
        exclusive_minimum=_bound(a.exclusive_minimum, b.exclusive_minimum, 1),
        exclusive_maximum=_bound(a.exclusive_maximum, b.exclusive_maximum, -1),
        multiple_of=_multiple(a.multiple_of, b.multiple_of, pointer),
    )


def _bound(a: Number | None, b: Number | None, sign: int) -> Number | None:
    if a is None or b is None:
        return b if a is None else a
    return a if compare(a, b) * sign >= 0 else b


def _multiple(a: Number | None, b: Number | None, pointer: str) -> Number | None:
    """Multiples of both are those of the least common one."""
    if a is None or b is None or a == b:
        return b if a is None else a
    exponent = min(a[1], b[1])
    if max(a[1], b[1]) - exponent > _MAX_EXPONENT_GAP:
        raise SchemaError(pointer, "multipleOf", "two steps of very different size are not supported")
    whole = [number[0] * 10 ** (number[1] - exponent) for number in (a, b)]
    return normal(lcm(*whole), exponent)


def _objects(a: ObjectFacts, b: ObjectFacts, pointer: str, limits: Limits) -> ObjectFacts:
    if not b.origins or a == b:
        return replace(a, required=tuple(dict.fromkeys((*a.required, *b.required))))
    if not a.origins:
        return replace(b, required=tuple(dict.fromkeys((*a.required, *b.required))))
    properties = {
        name: places(*a.properties.get(name, a.additional), *b.properties.get(name, b.additional))
        for name in dict.fromkeys((*a.properties, *b.properties))
    }
    if len(properties) > limits.max_properties:
        raise SchemaError(pointer, "max_properties", f"more than {limits.max_properties}")
    return ObjectFacts(
        origins=tuple(dict.fromkeys((*a.origins, *b.origins))),
        properties=properties,
        required=tuple(dict.fromkeys((*a.required, *b.required))),
        additional=places(*a.additional, *b.additional),
        min_properties=max(a.min_properties, b.min_properties),
        max_properties=_least(a.max_properties, b.max_properties),
    )


def _arrays(a: ArrayFacts, b: ArrayFacts) -> ArrayFacts:
    length = max(len(a.prefix), len(b.prefix))
    return ArrayFacts(
        origins=tuple(dict.fromkeys((*a.origins, *b.origins))),
        prefix=tuple(places(*_at(a, i), *_at(b, i)) for i in range(length)),
        items=places(*a.items, *b.items),
        min_items=max(a.min_items, b.min_items),
        max_items=_least(a.max_items, b.max_items),
    )


def _at(facts: ArrayFacts, index: int) -> tuple[tuple[object, str], ...]:
    return facts.prefix[index] if index < len(facts.prefix) else facts.items
