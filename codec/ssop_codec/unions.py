"""`anyOf` and `oneOf` as rules of one node.

For each JSON type: where one branch allows it, the facts of that branch count; where several do, their facts are
merged if that changes nothing; else the node takes any value of the type, and the judge runs the branches beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .constants import FieldType
from .facts import NUMERIC, ArrayFacts, Facts, NumberFacts, ObjectFacts, Residual, StringFacts

T = TypeVar("T", StringFacts, NumberFacts, ObjectFacts, ArrayFacts)


def merge(  # noqa: C901  # one check per type
    branches: Sequence[Facts], keyword: str, pointer: str
) -> Facts:
    """One set of facts for all branches. `keyword` is `anyOf` or `oneOf`, `pointer` that of its schema."""
    exclusive = keyword == "oneOf"
    types = declared = judged = 0
    residuals: dict[Residual, None] = {}
    for branch in branches:
        types |= branch.types
        declared |= branch.declared_types

    def having(bits: int) -> list[Facts]:
        return [branch for branch in branches if branch.types & bits]

    def is_plain(bits: int, found: Sequence[Facts]) -> bool:
        """Whether facts can say all; residuals of a branch that stands alone are kept."""
        nonlocal judged
        own = [r for branch in found for r in branch.residuals if r.types & bits]
        if len(found) > 1 and own:
            judged |= bits
            return False
        residuals.update(dict.fromkeys(Residual(r.types & bits, r.pointer, r.keyword) for r in own))
        return True

    if is_plain(FieldType.NULL, having(FieldType.NULL)) and exclusive and len(having(FieldType.NULL)) > 1:
        judged |= FieldType.NULL
    bools: frozenset[bool] = frozenset()
    is_plain(FieldType.BOOLEAN, having(FieldType.BOOLEAN))
    for branch in having(FieldType.BOOLEAN):
        if exclusive and bools & branch.bools:
            judged |= FieldType.BOOLEAN
        bools |= branch.bools
    string: StringFacts | None = StringFacts()
    number: NumberFacts | None = NumberFacts()
    object_: ObjectFacts | None = None
    array: ArrayFacts | None = None
    if is_plain(FieldType.STRING, having(FieldType.STRING)):
        strings = [branch.string for branch in having(FieldType.STRING)]
        string = _same(strings, exclusive) or _merge_strings(strings, exclusive)
    if is_plain(NUMERIC, having(NUMERIC)):
        numbers = [branch.number for branch in having(NUMERIC)]
        number = _same(numbers, exclusive) or _merge_numbers(numbers, exclusive)
    if is_plain(FieldType.OBJECT, having(FieldType.OBJECT)):
        object_ = _same([branch.object for branch in having(FieldType.OBJECT)], exclusive)
    if is_plain(FieldType.ARRAY, having(FieldType.ARRAY)):
        array = _same([branch.array for branch in having(FieldType.ARRAY)], exclusive)
    judged |= FieldType.STRING if string is None else 0
    judged |= NUMERIC if number is None else 0
    judged |= FieldType.OBJECT if object_ is None else 0
    judged |= FieldType.ARRAY if array is None else 0
    judged &= types
    if judged:
        residuals[Residual(int(judged), pointer, keyword)] = None
    keywords = {branch.enum_keyword for branch in branches} - {""}
    return Facts(
        types=types,
        declared_types=declared,
        enum_keyword=("enum" if len(branches) > 1 else min(keywords)) if keywords else "",
        string=string or StringFacts(),
        number=number or NumberFacts(is_double=all(branch.number.is_double for branch in having(NUMERIC))),
        bools=bools,
        object=object_ or ObjectFacts(),
        array=array or ArrayFacts(),
        residuals=tuple(residuals),
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
