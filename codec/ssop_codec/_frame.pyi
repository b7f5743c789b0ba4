from decimal import Decimal
from typing import Any

from .frames import End, Header

class Frame:
    """One frame, read-only."""

    seq: int
    kind: int
    node: int
    document: int
    parts: int
    value: str | float | int | bool | Decimal | None
    size: int | None
    header: Header | None
    end: End | None
    mesh: bytes | None
    raw: bytes
    delta: dict[str, Any]
    tokens: tuple[str | int, ...]
    @property
    def is_part(self) -> bool: ...
    @property
    def path(self) -> str: ...
