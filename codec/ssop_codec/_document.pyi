from typing import Any

from .frames import End, Header
from .limits import Limits

class Document:
    """State of one document: its table, what is open, what was lost."""

    header: Header | None
    end: End | None
    result: Any
    missing: int
    def __init__(self, limits: Limits) -> None: ...
    @property
    def text(self) -> str: ...
