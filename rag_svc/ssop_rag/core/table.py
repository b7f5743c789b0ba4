"""The vectors of one collection in memory: a growing matrix; dead rows are skipped, and squeezed out when many."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ssop_rag.core.model import Hit, Matrix, Vector
from ssop_rag.core.ranking import scan

_NEVER_MS: Final = np.iinfo(np.int64).max
_DEAD_MS: Final = 0
_MIN_ROWS: Final = 64


@dataclass(frozen=True, slots=True)
class _Row:
    document_id: str
    passage: int


class VectorTable:
    """Rows (document, passage, vector of `dim`, expiry). Not safe for threads; the owner locks."""

    def __init__(self, collection: str, dim: int) -> None:
        self._collection = collection
        self._dim = dim
        self._clear(_MIN_ROWS)

    def _clear(self, capacity: int) -> None:
        self._matrix: Matrix = np.zeros((capacity, self._dim), dtype=np.float32)
        self._expires_at_ms = np.zeros(capacity, dtype=np.int64)
        self._rows: list[_Row | None] = []
        self._slots: dict[str, list[int]] = {}
        self._dead = 0
        self._next_expiry_ms = int(_NEVER_MS)

    @property
    def documents(self) -> int:
        """Documents that are held, expired ones included until `expired` is acted on."""
        return len(self._slots)

    @property
    def passages(self) -> int:
        """Passages of those documents."""
        return len(self._rows) - self._dead

    def put(self, document_id: str, vectors: Matrix, expires_at_ms: int) -> None:
        """Add a document, or replace it. `vectors` is (passages, dim); `expires_at_ms` 0 is never."""
        self.remove(document_id)
        if self._dead > max(_MIN_ROWS, self.passages):
            self._squeeze()
        begin, end = len(self._rows), len(self._rows) + len(vectors)
        if end > len(self._matrix):
            self._grow(end)
        self._matrix[begin:end] = vectors
        self._expires_at_ms[begin:end] = expires_at_ms or _NEVER_MS
        self._next_expiry_ms = min(self._next_expiry_ms, expires_at_ms or int(_NEVER_MS))
        self._rows += [_Row(document_id, number) for number in range(len(vectors))]
        self._slots[document_id] = list(range(begin, end))

    def remove(self, document_id: str) -> int:
        """Drop a document; the number of its passages, 0 where it is not held."""
        slots = self._slots.pop(document_id, [])
        for slot in slots:
            self._rows[slot] = None
            self._expires_at_ms[slot] = _DEAD_MS
        self._dead += len(slots)
        return len(slots)

    def expired(self, now_ms: int) -> list[str]:
        """Documents whose time has passed, in order of their ids; each is told once."""
        if now_ms < self._next_expiry_ms:
            return []
        used = self._expires_at_ms[: len(self._rows)]
        later = used[used > now_ms]
        self._next_expiry_ms = int(later.min()) if later.size else int(_NEVER_MS)
        past = np.flatnonzero((used != _DEAD_MS) & (used <= now_ms))
        return sorted({row.document_id for slot in past if (row := self._rows[slot]) is not None})

    def search(self, query: Vector, k: int, now_ms: int) -> tuple[list[Hit], Matrix]:
        """The best `k` live passages for (dim,) `query`, best first, and their vectors (hits, dim)."""
        count = len(self._rows)
        slots, scores = scan(self._matrix[:count], self._expires_at_ms[:count] > now_ms, query, k)
        found = sorted(self._hits(slots.tolist(), scores.tolist()), key=lambda pair: pair[0].rank)[:k]
        return [hit for hit, _ in found], self._matrix[[slot for _, slot in found]]

    def _hits(self, slots: Iterable[int], scores: Iterable[float]) -> Iterable[tuple[Hit, int]]:
        for slot, score in zip(slots, scores, strict=True):
            row = self._rows[slot]
            if row is not None:  # always: the scan's mask leaves out dead rows
                yield Hit(score, self._collection, row.document_id, row.passage), slot

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * len(self._matrix))
        count = len(self._rows)
        matrix, expires_at_ms = self._matrix, self._expires_at_ms
        self._matrix = np.zeros((capacity, self._dim), dtype=np.float32)
        self._expires_at_ms = np.zeros(capacity, dtype=np.int64)
        self._matrix[:count], self._expires_at_ms[:count] = matrix[:count], expires_at_ms[:count]

    def _squeeze(self) -> None:
        matrix, expires_at_ms, slots_of = self._matrix, self._expires_at_ms, self._slots
        self._clear(max(_MIN_ROWS, 2 * self.passages))
        for document_id, slots in slots_of.items():
            self.put(document_id, matrix[slots], int(expires_at_ms[slots[0]]))
