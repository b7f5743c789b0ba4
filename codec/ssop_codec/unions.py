"""`anyOf` and `oneOf` whose branches the first byte of a value tells apart.

Branches that share a type are merged where that cannot change what is accepted; else they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .constants import FieldType
from .errors import SchemaError
from .facts import NUMERIC, ArrayFacts, Facts, NumberFacts, ObjectFacts, StringFacts

T = TypeVar("T", StringFacts, NumberFacts, ObjectFacts, ArrayFacts)


def merge(  # noqa: C901  # one check per type
    branches: Sequence[Facts], keyword: str, pointer: str
) -> Facts:
    """One set of facts for all branches. `keyword` is `anyOf` or `oneOf`."""
    exclusive = keyword == "oneOf"

    def having(bits: int) -> list[Facts]:
        return [branch for branch in branches if branch.types & bits]

    def refuse(what: str) -> SchemaError:
        return SchemaError(pointer, keyword, f"more than one branch allows {what}")

    types = declared = 0
    for branch in branches:
        types |= branch.types
        declared |= branch.declared_types
    if exclusive and len(having(FieldType.NULL)) > 1:
        raise refuse("null")
    bools: frozenset[bool] = frozenset()
    for branch in having(FieldType.BOOLEAN):
        if exclusive and bools & branch.bools:
            raise refuse("the same boolean")
        bools |= branch.bools
    strings = [branch.string for branch in having(FieldType.STRING)]
    numbers = [branch.number for branch in having(NUMERIC)]
    objects = [branch.object for branch in having(FieldType.OBJECT)]
    arrays = [branch.array for branch in having(FieldType.ARRAY)]
    string = _same(strings, exclusive) or _merge_strings(strings, exclusive)
    number = _same(numbers, exclusive) or _merge_numbers(numbers, exclusive)
    object_ = _same(objects, exclusive)
    array = _same(arrays, exclusive)
    if string is None:
        raise refuse("strings")
    if number is None:
        raise refuse("numbers")
    if object_ is None and objects:
        raise refuse("objects")
    if array is None and arrays:
        raise refuse("arrays")
    keywords = {branch.enum_keyword for branch in branches} - {""}
    return Facts(
        types=types,
        declared_types=declared,
        enum_keyword=("enum" if len(branches) > 1 else min(keywords)) if keywords else "",
        string=string,
        number=number,
        bools=bools,
        object=object_ or ObjectFacts(pointer),
        array=array or ArrayFacts(pointer),
    )


def _same(facts: Sequence[T], exclusive: bool) -> T | None:
    """The facts, where there is one branch or all say the same."""
    if not facts or (exclusive and len(facts) > 1):
        return None
    return facts[0] if all(other == facts[0] for other in facts) else None


def _merge_strings(facts: Sequence[StringFacts], exclusive: bool) -> StringFacts | None:
    if not facts or (not exclusive and StringFacts() in facts):
        return StringFacts()
    members: dict[str, None] = {}
    for branch in facts:
        if branch.enum is None or (exclusive and any(member in members for member in branch.enum)):
            return None
        members.update(dict.fromkeys(branch.enum))
    return StringFacts(enum=tuple(members))


def _merge_numbers(facts: Sequence[NumberFacts], exclusive: bool) -> NumberFacts | None:
    if not facts:
        return NumberFacts()
    is_double = all(branch.is_double for branch in facts)
    if not exclusive and (NumberFacts() in facts or NumberFacts(is_double=True) in facts):
        return NumberFacts(is_double=is_double)
    members: dict[tuple[int, int], None] = {}
    for branch in facts:
        if branch.enum is None or (exclusive and any(member in members for member in branch.enum)):
            return None
        members.update(dict.fromkeys(branch.enum))
    return NumberFacts(enum=tuple(members), is_double=is_double)
