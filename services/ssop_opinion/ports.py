"""What the parts of the application ask of each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record

OnField = Callable[[str, Any], None]
"""Called with a top-level field's name and value when its frame arrives; provisional until the verdict."""


class Analyst(Protocol):
    """Turns posts into analyses, through the mesh."""

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        """The analysis of a post; what one post or one answer is at fault of is the verdict `failed`.

        Raises MeshAwayError when the mesh can't be reached or has nothing left to serve: the post is tried again later.
        """
        ...


class MeshAwayError(Exception):
    """No answer can be had now; `retry_after_s` is when to try again.

    `is_of_tenant`: the mesh refuses this tenant (a limit, a key), and may well serve others.
    """

    def __init__(self, message: str, retry_after_s: float, *, is_of_tenant: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_of_tenant = is_of_tenant


@dataclass(frozen=True, slots=True)
class ItemFault:
    """A record that a sink did not take. A lasting fault goes to the dead letters, another is tried again."""

    key: str
    reason: str
    is_lasting: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Records that a search found, newest first, and how many there are in all."""

    records: Sequence[Record]
    total: int


@dataclass(frozen=True, slots=True)
class Query:
    """A search of one tenant's records. Times are Unix milliseconds, until is exclusive; None and empty mean any."""

    tenant: str
    text: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    terms: Mapping[str, str] | None = None
    """By name of a field or of the post's metadata (`main_entity`, `event_type`, `sentiment_label`, `region`, ...)."""
    has_degraded: bool = True
    limit: int = 100
    offset: int = 0


class Sink(Protocol):
    """Keeps records, one for each key: writing a key again replaces its record."""

    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        """Write records durably; what is not named in the result is kept. Raises SinkAwayError."""
        ...

    async def find(self, query: Query) -> Page:
        """Records of a tenant. Raises SinkAwayError."""
        ...

    async def close(self) -> None:
        """Let go of connections and files."""
        ...


class SinkAwayError(Exception):
    """The sink can't be reached; posts stay unacknowledged until it is."""


class AlertDesk(Protocol):
    """Judges records by the tenant's rules, and tells people."""

    def field_arrived(self, post: Post, name: str, value: Any, now_ms: int) -> None:
        """A field of a post is there, not yet confirmed."""
        ...

    async def record_stored(self, record: Record, now_ms: int) -> None:
        """The record of a post is in the sink: confirm, correct or withdraw what its fields had caused.

        Called before the post leaves the queue: after a crash in between it is called again for the same key.
        """
        ...
