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
ALWAYS: Final = -3
"""In place of a check: whatever the value is."""
NEVER: Final = -4
"""In place of a check: no value."""


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
    is_strict: bool = False
    """An integer has neither point nor exponent, as in draft-04."""
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Number | None = None
    min_length: int = 0
    max_length: int = UNBOUNDED
    string_format: str = ""
    shape: Pattern | None = None
    """What every text of the format matches, where there is no pattern."""
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
    roots: tuple[tuple[int, int], ...] = ()
    """Types, and the check in `Schema.checks` that values of these types have to keep, too."""


@dataclass(frozen=True, slots=True)
class Group:
    """Checks of the same value that a keyword joins."""

    kind: str
    """`all`, `any`, `one`, `not`, `if` or `when`."""
    keyword: str
    kids: tuple[int, ...]
    """Numbers of checks. `if`: condition, then, else; `ALWAYS` where one is absent."""
    key: bytes = b""
    """`when`: the checks count where the object has this key."""


@dataclass(slots=True)
class Check:
    """A schema as the judge runs it over the events of a value. Its number is its position in `Schema.checks`."""

    pointer: str
    rule: Rule
    """What it says about scalars, counts and types."""
    settled: int
    """Types of values that keep the check's own keywords as soon as their type (or literal) is known."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """Check of each key that the schema names, or ALWAYS."""
    properties: frozenset[bytes] = frozenset()
    """Those of them that are no additional properties."""
    required: tuple[bytes, ...] = ()
    additional: int = ALWAYS
    """Check of other keys; ALWAYS or NEVER."""
    patterns: tuple[tuple[str, int], ...] = ()
    """Regular expressions of `patternProperties` and their checks."""
    dependents: tuple[tuple[bytes, tuple[bytes, ...]], ...] = ()
    """`dependentRequired`."""
    prefix: tuple[int, ...] = ()
    items: int = ALWAYS
    contains: int = ALWAYS
    min_contains: int = 0
    max_contains: int = UNBOUNDED
    contains_keyword: str = "contains"
    names: int = ALWAYS
    """Check of each key, as a string."""
    is_unique: bool = False
    members: frozenset[object] | None = None
    """Objects and arrays that `enum` or `const` allows, frozen; None where it does not stand."""
    groups: tuple[Group, ...] = ()


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
    checks: tuple[Check, ...] = field(repr=False, default=())
    patterns: dict[str, Pattern] = field(repr=False, default_factory=dict)
    """Automata of the regular expressions that `checks` name."""
    is_text: bool = False
    is_raw: bool = False
    cache: dict[object, object] = field(repr=False, default_factory=dict)
    """Derived tables of the encoders; each entry is made at most a few times and never changed."""
