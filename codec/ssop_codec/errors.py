"""What the codec raises, and what it reports about a document.

CodecError
  SchemaError   the caller's schema is refused
  FrameError    the peer sent bytes that are no chunk
"""

from __future__ import annotations

from dataclasses import dataclass


class CodecError(Exception):
    """Base of all errors of the codec."""


class SchemaError(CodecError):
    """A schema is refused.

    `pointer` is the JSON Pointer of the offending keyword in the schema, `keyword` its name or that of the
    cap that was exceeded, `reason` says why, in words.
    """

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        super().__init__(pointer, keyword, reason)
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.keyword} at {self.pointer or 'the root'}: {self.reason}"


class FrameError(CodecError):
    """Bytes that are no chunk, or frames that contradict each other: the peer's fault."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The first breach of the schema or of JSON in a document."""

    rule: str
    """A JSON Schema keyword, or `syntax`, `utf8`, `duplicateKey`, `trailing`, `limit`."""
    pointer: str
    """JSON Pointer of the value. It stops at the object whose key the model made up."""
    offset_bytes: int
    """Offset in the model's output of the first byte after which no valid document exists."""
    expected: str
    """What was expected, in words; holds no generated content."""
