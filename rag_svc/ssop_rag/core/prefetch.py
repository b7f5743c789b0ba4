"""Which prefetches run or wait to be used: a bounded book, without I/O; time is passed in, in milliseconds.

An entry is pending (its search runs), then ready, and leaves the book once: used, or wasted for a reason. Entries of
different tenants never meet, since the tenant is part of every key.
"""

from dataclasses import dataclass, field
from enum import Enum

from ssop_rag.core.model import Candidates, Vector


class Begun(Enum):
    """What became of the wish to prefetch."""

    STARTED = "started"
    KEPT = "kept"
    """One with at least this much text is there already."""
    TENANT_FULL = "tenant_full"
    BOOK_FULL = "book_full"


class Waste(Enum):
    """Why a prefetch was of no use."""

    CANCELLED = "cancelled"
    REPLACED = "replaced"
    EXPIRED = "expired"
    MISSED = "missed"
    FAILED = "failed"


class Use(Enum):
    """What of a prefetch was used."""

    VECTOR = "vector"
    """It had the text of the whole query."""
    ANSWER = "answer"
    """Its vector, and its candidates are shown to hold the answer."""
    CANDIDATES = "candidates"
    """Its candidates are shown to hold the answer of a longer query."""
    LOSSY = "lossy"
    """The best of its candidates, whatever else there is."""

    @property
    def has_vector(self) -> bool:
        """The query was not embedded again."""
        return self in (Use.VECTOR, Use.ANSWER)

    @property
    def has_candidates(self) -> bool:
        """The collections were not searched again."""
        return self is not Use.VECTOR


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds. `tenant_running` is `rag_max_concurrent`; `tenant_entries` and `entries` count ready ones too."""

    tenant_running: int = 2
    tenant_entries: int = 32
    entries: int = 256
    ttl_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Result:
    """What a prefetch found. `vector` is that of its text; None where no ranker needs one."""

    vector: Vector | None
    candidates: Candidates
    embedded_ms: int
    """When its vector was there; `finished_ms`, when its candidates were."""
    finished_ms: int


@dataclass(slots=True, eq=False)
class Entry:
    """A prefetch. `names` are the collections as they were asked for, in order; empty is all."""

    tenant: str
    request_id: str
    names: tuple[str, ...]
    text: str
    started_ms: int
    result: Result | None = field(default=None)

    def overlap_ms(self, now_ms: int) -> int:
        """How long it had been at work by `now_ms`."""
        end_ms = now_ms if self.result is None else min(now_ms, self.result.finished_ms)
        return max(0, end_ms - self.started_ms)

    def saved_ms(self, kind: Use, waited_ms: int) -> int:
        """What a request needn't do because of it, less what it waited for it."""
        if self.result is None:
            return 0
        embedding_ms = self.result.embedded_ms - self.started_ms
        searching_ms = self.result.finished_ms - self.result.embedded_ms
        saved_ms = (embedding_ms if kind.has_vector else 0) + (searching_ms if kind.has_candidates else 0)
        return max(0, saved_ms - waited_ms)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Outcome of `begin`: the entry when it started, and the one that it replaced."""

    outcome: Begun
    entry: Entry | None = None
    replaced: Entry | None = None


class PrefetchBook:
    """The prefetches of one process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[tuple[str, str], Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def change(self, limits: Limits) -> None:
        """Let other bounds hold for what begins from now on."""
        self._limits = limits

    def begin(self, tenant: str, request_id: str, names: tuple[str, ...], text: str, now_ms: int) -> Beginning:
        """Enter a prefetch, unless one with as much text is there or a bound is reached."""
        key = (tenant, request_id)
        old = self._entries.get(key)
        if old is not None and len(text) <= len(old.text) and old.names == names:
            return Beginning(Begun.KEPT)
        own = [entry for entry in self._entries.values() if entry.tenant == tenant and entry is not old]
        running = sum(1 for entry in own if entry.result is None)
        if running >= self._limits.tenant_running or len(own) >= self._limits.tenant_entries:
            return Beginning(Begun.TENANT_FULL)
        if len(self._entries) - (old is not None) >= self._limits.entries:
            return Beginning(Begun.BOOK_FULL)
        entry = Entry(tenant, request_id, names, text, now_ms)
        self._entries[key] = entry
        return Beginning(Begun.STARTED, entry, replaced=old)

    def finish(self, entry: Entry, result: Result) -> bool:
        """Record what it found; False when it has left the book meanwhile."""
        entry.result = result
        return self._entries.get((entry.tenant, entry.request_id)) is entry

    def drop(self, entry: Entry) -> bool:
        """Take out this very entry; False when it is not in the book any more."""
        key = (entry.tenant, entry.request_id)
        if self._entries.get(key) is not entry:
            return False
        del self._entries[key]
        return True

    def find(self, tenant: str, request_id: str) -> Entry | None:
        """The request's prefetch, which stays in the book."""
        return self._entries.get((tenant, request_id))

    def take(self, tenant: str, request_id: str, now_ms: int) -> Entry | None:
        """Take out the request's prefetch, for use or to cancel it; None when there is none or it has expired."""
        entry = self._entries.get((tenant, request_id))
        if entry is None or now_ms >= self.expires_at_ms(entry):
            return None
        del self._entries[tenant, request_id]
        return entry

    def expire(self, now_ms: int) -> list[Entry]:
        """Take out those whose time is over."""
        over = [entry for entry in self._entries.values() if now_ms >= self.expires_at_ms(entry)]
        for entry in over:
            del self._entries[entry.tenant, entry.request_id]
        return over

    def next_expiry_ms(self) -> int | None:
        """When the time of the oldest entry is over; None where there is none."""
        return min((self.expires_at_ms(entry) for entry in self._entries.values()), default=None)

    def expires_at_ms(self, entry: Entry) -> int:
        """When an entry's time is over."""
        return entry.started_ms + self._limits.ttl_ms
