"""How large the engine's grammar of a schema gets, and what keeps it from getting larger.

The engine unrolls counted items and walks the remainders of `multipleOf`. A schema of a hundred bytes can ask for
gigabytes that way, while every other generation of the node waits.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from ssop_inference.core.relaxation import child_schemas, map_schemas

MAX_STATES: Final = 32_768
"""Items and remainders that a grammar counts. Measured: 5 us and 1 KB an item, 2 us a remainder, and twice that for
the gate; the engine's parser has no room for 65,536."""
MAX_COUNTED_ITEMS: Final = 4_096
"""Largest `maxItems` that the grammar counts to where `minItems` asks for no more."""


def count_states(schema: Any) -> int:
    """The states that the counts of a schema take, all subschemas together. Definitions count once."""
    return sum(_states(inner) for inner in _walk(schema))


def cap_items(schema: Any) -> tuple[Any, tuple[str, ...]]:
    """The schema with no `maxItems` above MAX_COUNTED_ITEMS, unless `minItems` asks for it; and what was changed."""
    changed: dict[int, None] = {}

    def cap(inner: Any) -> Any:
        inner = map_schemas(inner, cap)
        if not isinstance(inner, Mapping) or (most := inner.get("maxItems", 0)) <= MAX_COUNTED_ITEMS:
            return inner
        capped = min(most, max(MAX_COUNTED_ITEMS, inner.get("minItems", 0)))
        if capped == most:
            return inner
        changed[capped] = None
        return {**inner, "maxItems": capped}

    return cap(schema), tuple(f"maxItems={capped} wherever it is larger" for capped in changed)


def _walk(schema: Any) -> Iterator[Mapping[str, Any]]:
    pending = [schema]
    while pending:
        inner = pending.pop()
        if isinstance(inner, Mapping):
            yield inner
            pending += child_schemas(inner)


def _states(schema: Mapping[str, Any]) -> int:
    items = max(schema.get("minItems", 0), schema.get("maxItems", 0))
    divisor = schema.get("multipleOf")
    if divisor is None:
        return int(items)
    # 0.25 has the remainders of 25.
    digits = Decimal(repr(divisor)).normalize().as_tuple().digits
    return int(items) + int("".join(map(str, digits)))
