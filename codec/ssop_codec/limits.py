"""Hard caps of the codec, each named in the error that it causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on schemas (refused when compiled) and on documents (violation `limit`).

    Sizes are bytes of UTF-8. All caps are inclusive.
    """

    max_schema_bytes: int = 262_144
    """Size of the schema in canonical form, and of its text where text is given."""
    max_depth: int = 64
    """Nesting of schemas, and of containers in a document."""
    max_properties: int = 1_000
    """Named properties of one object."""
    max_nodes: int = 4_096
    """Nodes of the field table."""
    max_schema_steps: int = 32_768
    """Schemas read while compiling, each counted once."""
    max_enum_values: int = 1_000
    """Members of one `enum`."""
    max_enum_bytes: int = 32_768
    """Strings of one `enum` together."""
    max_table_enum_values: int = 32_768
    """Members of all `enum`s of the field table; a definition counts wherever it is used."""
    max_pattern_chars: int = 8_192
    """One regular expression of `pattern` or `patternProperties`."""
    max_pattern_depth: int = 64
    """Nesting of groups in one of them; at most 100."""
    max_pattern_states: int = 10_000
    """States of its automaton; a counted repetition has its states as often as it counts."""
    max_document_bytes: int = 16 * 1024 * 1024
    """Model output of one document, envelope included."""
    max_whitespace_run_bytes: int = 256
    """Blanks in a row between two tokens of a document."""
    max_key_bytes: int = 1_024
    """One object key of a document, unescaped."""
    max_number_bytes: int = 256
    """Text of one number."""
    max_format_bytes: int = 8_192
    """A string that `format` judges when it is whole."""
    max_object_keys: int = 65_536
    """Keys of one object that the schema does not name; they are kept to find duplicates."""
    max_live_checks: int = 16_384
    """Schemas that are judged at the same time beside the rules of the open values: branches of unions and the
    like. One counts once a value, however many ways lead to it."""
    max_held_bytes: int = 65_536
    """Text of one value that is compared as a whole: an item under `uniqueItems`, an object or array under
    `enum` or `const`."""
    max_unique_items: int = 65_536
    """Items of one array under `uniqueItems`."""
    max_array_gap: int = 4_096
    """Decoder: items that a loss of frames may leave out of the arrays of a document."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 1 <= getattr(self, name) < 2**31:
                raise ValueError(f"{name} must be from 1 to 2**31 - 1")
        if self.max_pattern_depth > 100:
            # Reading a pattern recurses four times a level.
            raise ValueError("max_pattern_depth must be at most 100")
        if self.max_depth > 512:
            # Compiling and walking recurse once a level; 512 stays far from the interpreter's stack.
            raise ValueError("max_depth must be at most 512")


DEFAULT_LIMITS: Final = Limits()
