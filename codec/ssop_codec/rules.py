"""A compiled schema: the field table that clients get, and one rule per node that the encoder obeys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ._pattern import Pattern
from .constants import ALL_TYPES
from .number import Number

FORBIDDEN: Final = -1
"""In place of a child's node: no value is allowed there."""
UNTYPED: Final = -2
"""In place of a child's node: any value, without a node of its own."""
UNBOUNDED: Final = -1
"""In place of a maximum count."""


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A node of the field table, as in the header."""

    node: int
    parent: int
    step: int
    key: str
    index: int
    types: int
    ref_node: int | None
    required: bool


@dataclass(slots=True)
class Rule:
    """What one node allows. Its number is its position in `Schema.rules`."""

    pointer: str = ""
    """JSON Pointer in the schema."""
    types: int = ALL_TYPES
    """Types that can still conform, `enum` counted in."""
    declared_types: int = ALL_TYPES
    """Types that `type` allows; tells a breach of `type` from one of `enum`."""
    enum_keyword: str = ""
    """`enum`, `const` or empty. Where set, the members below are the only allowed values."""
    enum_strings: tuple[bytes, ...] | None = None
    """Sorted. None: any string."""
    enum_numbers: tuple[Number, ...] | None = None
    """None: any number."""
    bools: frozenset[bool] = frozenset((False, True))
    is_double: bool = False
    """The schema says `number` and not `integer`: integers, too, travel as doubles."""
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Number | None = None
    min_length: int = 0
    max_length: int = UNBOUNDED
    string_format: str = ""
    pattern: Pattern | None = None
    properties: dict[str, int] = field(default_factory=dict)
    """Node of each named property, in the order of the schema."""
    required: tuple[str, ...] = ()
    additional: int = UNTYPED
    min_properties: int = 0
    max_properties: int = UNBOUNDED
    prefix: tuple[int, ...] = ()
    items: int = UNTYPED
    min_items: int = 0
    max_items: int = UNBOUNDED
    object_at: int = 0
    """Node in whose subtree the properties stand: this one, or the one that a reference names."""
    array_at: int = 0
    """The same for items."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A compiled schema. Immutable; threads and encoders may share it."""

    hash: bytes
    """SHA-256 of `canonical`; empty for plain text and raw JSON."""
    canonical: bytes
    """The schema in the form of RFC 8785."""
    nodes: tuple[FieldNode, ...]
    annotations: tuple[str, ...]
    """Keywords that are taken as annotations and not checked, such as `format:color`."""
    auto_buffer_bytes: int
    """`stream_buffer_size` when it is `auto`: a power of two from 1,024 to 16,384."""
    caps: dict[str, int]
    """What the schema uses of each cap."""
    rules: tuple[Rule, ...] = field(repr=False, default=())
    is_text: bool = False
    is_raw: bool = False
    cache: dict[object, object] = field(repr=False, default_factory=dict)
    """Derived tables of the encoders; each entry is made at most a few times and never changed."""
