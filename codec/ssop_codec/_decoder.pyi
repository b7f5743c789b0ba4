from decimal import Decimal
from typing import Any

from typing_extensions import Buffer

from ._document import Document
from .errors import Violation
from .frames import End, Header
from .limits import Limits

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

class Decoder:
    """Rebuilds the documents of one request from its chunks."""

    def __init__(self, *, limits: Limits | None = None) -> None: ...
    def feed(self, chunk: Buffer) -> list[Frame]: ...
    @property
    def documents(self) -> dict[int, Document]: ...
    @property
    def verdict(self) -> int: ...
    @property
    def violation(self) -> Violation | None: ...
    @property
    def end(self) -> End | None: ...
    @property
    def header(self) -> Header | None: ...
    @property
    def result(self) -> Any: ...
    @property
    def text(self) -> str: ...
    @property
    def frames_received(self) -> int: ...
    @property
    def frames_verified(self) -> int: ...
    @property
    def missing(self) -> int: ...

def scan_heads(chunk: Buffer) -> list[tuple[int, int, int]]: ...
