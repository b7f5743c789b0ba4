"""Vectors and terms of one collection in memory: growing rows; dead ones are skipped, and squeezed out when many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ssop_rag.core.coarse import CoarseRows
from ssop_rag.core.lexical import CorpusStats, LexicalIndex
from ssop_rag.core.model import Hit, Matrix, Vector
from ssop_rag.core.ranking import best_rows, scan
from ssop_rag.core.terms import Terms

_NEVER_MS: Final = np.iinfo(np.int64).max
_DEAD_MS: Final = 0
_MIN_ROWS: Final = 64
COARSE_FROM_ROWS: Final = 16_384
"""From here on (25 MB of vectors of 384 numbers) a table leaves the processor's caches, and reading a quarter pays."""
_WORTH_A_COPY: Final = 8
"""Rows that are not ruled out are copied together; where they are more than this part of all, all are read instead."""


@dataclass(frozen=True, slots=True)
class _Row:
    document_id: str
    passage: int


class PassageTable:
    """Rows (document, passage, vector of `dim`, terms, expiry). Not safe for threads; the owner locks.

    From `coarse_from` rows on a coarse copy of the vectors rules out most of them; what is found is the same.
    """

    def __init__(self, collection: str, dim: int, coarse_from: int = COARSE_FROM_ROWS) -> None:
        self._collection = collection
        self._coarse_from = coarse_from
        self._dim = dim
        self._lexical = LexicalIndex()
        self._clear(_MIN_ROWS)

    def _clear(self, capacity: int) -> None:
        self._matrix: Matrix = np.zeros((capacity, self._dim), dtype=np.float32)
        self._expires_at_ms = np.zeros(capacity, dtype=np.int64)
        self._rows: list[_Row | None] = []
        self._slots: dict[str, list[int]] = {}
        self._coarse: CoarseRows | None = None
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

    def put(self, document_id: str, vectors: Matrix, expires_at_ms: int, terms: Sequence[Terms] = ()) -> None:
        """Add a document, or replace it. `vectors` is (passages, dim); `expires_at_ms` 0 is never.

        `terms` are those of each passage; none where terms are not counted.
        """
        self.remove(document_id)
        if self._dead > max(_MIN_ROWS, self.passages):
            self._squeeze()
        begin, end = len(self._rows), len(self._rows) + len(vectors)
        if end > len(self._matrix):
            self._grow(end)
        self._matrix[begin:end] = vectors
        if self._coarse is not None:
            self._coarse.put(begin, self._matrix[begin:end])
        elif end >= self._coarse_from:
            self._coarse = CoarseRows(self._matrix[:end], len(self._matrix))
        self._expires_at_ms[begin:end] = expires_at_ms or _NEVER_MS
        self._next_expiry_ms = min(self._next_expiry_ms, expires_at_ms or int(_NEVER_MS))
        self._rows += [_Row(document_id, number) for number in range(len(vectors))]
        self._slots[document_id] = list(range(begin, end))
        for slot, of_passage in zip(range(begin, end), terms, strict=False):
            self._lexical.add(slot, of_passage)

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

    def search(self, query: Vector, k: int, now_ms: int) -> list[Hit]:
        """The best `k` live passages by cosine with (dim,) `query`, best first."""
        rows, is_live = self._matrix[: len(self._rows)], self._is_live(now_ms)
        if self._coarse is not None:
            near = self._coarse.may_be_best(query, is_live, k)
            if len(near) <= len(rows) // _WORTH_A_COPY:
                places, scores = scan(rows[near], np.ones(len(near), dtype=bool), query, k)
                return self._best(near[places], scores, k)
        slots, scores = scan(rows, is_live, query, k)
        return self._best(slots, scores, k)

    def vectors(self, hits: Sequence[Hit]) -> Matrix:
        """(hits, dim) vectors of passages that are held."""
        return self._matrix[[self._slots[hit.document_id][hit.passage] for hit in hits]]

    def stats(self, query: Terms, now_ms: int) -> CorpusStats:
        """What BM25 knows of the live passages."""
        return self._lexical.stats(query, self._is_live(now_ms))

    def search_terms(self, query: Terms, stats: CorpusStats, k: int, now_ms: int) -> list[Hit]:
        """The best `k` live passages by BM25 that share a term with the query, best first."""
        scores = self._lexical.scores(query, self._is_live(now_ms), stats)
        slots = best_rows(scores, k)
        return self._best(slots, scores[slots], k)

    def score_terms(self, query: Terms, stats: CorpusStats, hits: Sequence[Hit], now_ms: int) -> list[Hit]:
        """The passages of `hits` that share a term with the query, scored anew by BM25, best first."""
        scores = self._lexical.scores(query, self._is_live(now_ms), stats)
        slots = np.array([self._slots[hit.document_id][hit.passage] for hit in hits], dtype=np.intp)
        slots = slots[scores[slots] > 0]
        return self._best(slots, scores[slots], len(slots))

    def _is_live(self, now_ms: int) -> NDArray[np.bool_]:
        live: NDArray[np.bool_] = self._expires_at_ms[: len(self._rows)] > now_ms
        return live

    def _best(self, slots: NDArray[np.intp], scores: NDArray[np.float64], k: int) -> list[Hit]:
        hits = [
            Hit(score, self._collection, row.document_id, row.passage)
            for slot, score in zip(slots.tolist(), scores.tolist(), strict=True)
            if (row := self._rows[slot]) is not None  # always: the masks leave out dead rows
        ]
        return sorted(hits, key=lambda hit: hit.rank)[:k]

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * len(self._matrix))
        count = len(self._rows)
        matrix, expires_at_ms = self._matrix, self._expires_at_ms
        self._matrix = np.zeros((capacity, self._dim), dtype=np.float32)
        self._expires_at_ms = np.zeros(capacity, dtype=np.int64)
        self._matrix[:count], self._expires_at_ms[:count] = matrix[:count], expires_at_ms[:count]
        if self._coarse is not None:
            self._coarse.grow(capacity)

    def _squeeze(self) -> None:
        matrix, expires_at_ms, slots_of = self._matrix, self._expires_at_ms, self._slots
        moved = np.full(len(self._rows), -1, dtype=np.int64)
        self._clear(max(_MIN_ROWS, 2 * self.passages))
        for document_id, slots in slots_of.items():
            moved[slots] = range(len(self._rows), len(self._rows) + len(slots))
            self.put(document_id, matrix[slots], int(expires_at_ms[slots[0]]))
        self._lexical.renumber(moved)
