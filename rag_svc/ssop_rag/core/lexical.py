"""BM25 over the passages of one collection, kept as they come and go.

Postings lie in segments, each sorted by term. New passages make a new segment at the next search; a segment that is at
least half as large as the one before is merged with it, so that there are never more than a logarithm of them (O'Neil
et al., The log-structured merge-tree, 1996). Postings of dead rows are left out when they are read, so that a score
depends on what is there now and never on the order of changes.

The score is that of Robertson and Zaragoza (The probabilistic relevance framework, 2009) with the weight
`ln(1 + (N - n + 0.5) / (n + 0.5))`, which is never negative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ssop_rag.core.terms import Terms

K1: Final = 1.2
B: Final = 0.75


@dataclass(frozen=True, slots=True, eq=False)
class CorpusStats:
    """What BM25 knows of the passages that are searched: how many, their terms together, how many hold each term of
    the query ((terms,) int64). Those of several collections add up."""

    passages: int
    length: int
    holders: NDArray[np.int64]

    def __add__(self, other: "CorpusStats") -> "CorpusStats":
        return CorpusStats(self.passages + other.passages, self.length + other.length, self.holders + other.holders)


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """Postings by term: `terms` (t,) ascending and distinct, `starts` (t + 1,) into `slots` and `counts` (n,)."""

    terms: NDArray[np.uint64]
    starts: NDArray[np.int64]
    slots: NDArray[np.int32]
    counts: NDArray[np.uint16]

    def find(self, term: np.uint64) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        place = int(np.searchsorted(self.terms, term))
        if place == len(self.terms) or self.terms[place] != term:
            return self.slots[:0], self.counts[:0]
        begin, end = self.starts[place], self.starts[place + 1]
        return self.slots[begin:end], self.counts[begin:end]


class LexicalIndex:
    """Terms by slot, the number of a row in the owner's table. Not safe for threads; the owner locks."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._new: list[tuple[int, Terms]] = []
        self._lengths: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def postings(self) -> int:
        """Postings that are held, those of dead rows included."""
        return sum(len(segment.slots) for segment in self._segments) + sum(len(terms.ids) for _, terms in self._new)

    def add(self, slot: int, terms: Terms) -> None:
        """Enter the terms of a new row."""
        if slot >= len(self._lengths):
            lengths = np.zeros(max(slot + 1, 2 * len(self._lengths)), np.int64)
            lengths[: len(self._lengths)] = self._lengths
            self._lengths = lengths
        self._lengths[slot] = int(terms.counts.sum(dtype=np.int64))
        self._new.append((slot, terms))

    def renumber(self, slots: NDArray[np.int64]) -> None:
        """Give row `i` the slot `slots[i]`, and forget those with -1."""
        self._seal()
        merged = _merge(self._segments)
        if merged is None:
            return
        moved = slots[merged.slots]
        lengths = np.zeros(int(slots.max(initial=-1)) + 1, np.int64)
        kept = np.flatnonzero(slots >= 0)
        lengths[slots[kept]] = self._lengths[kept]
        self._lengths = lengths
        is_kept = moved >= 0
        terms = np.repeat(merged.terms, np.diff(merged.starts))[is_kept]
        self._segments = [_make(terms, moved[is_kept].astype(np.int32), merged.counts[is_kept])]

    def stats(self, query: Terms, is_live: NDArray[np.bool_]) -> CorpusStats:
        """Of the rows under the (rows,) mask."""
        self._seal()
        rows = len(is_live)
        holders = [sum(int(is_live[segment.find(term)[0]].sum()) for segment in self._segments) for term in query.ids]
        return CorpusStats(
            int(is_live.sum()), int(self._padded(rows)[is_live].sum()), np.array(holders, dtype=np.int64)
        )

    def scores(self, query: Terms, is_live: NDArray[np.bool_], stats: CorpusStats) -> NDArray[np.float64]:
        """(rows,) float64: BM25 of the rows under the (rows,) mask; 0 where no term of the query occurs."""
        self._seal()
        scores = np.zeros(len(is_live), np.float64)
        if not stats.length:
            return scores
        norm = K1 * (1 - B + B * self._padded(len(is_live)) * (stats.passages / stats.length))
        weights = np.log1p((stats.passages - stats.holders + 0.5) / (stats.holders + 0.5)) * (K1 + 1) * query.counts
        for term, weight in zip(query.ids, weights.tolist(), strict=True):
            for segment in self._segments:
                slots, counts = segment.find(term)
                scores[slots] += weight * (counts / (counts + norm[slots]))
        scores[~is_live] = 0.0
        return scores

    def _padded(self, rows: int) -> NDArray[np.int64]:
        """Lengths of `rows` rows; 0 for those that have no terms."""
        if rows <= len(self._lengths):
            return self._lengths[:rows]
        return np.pad(self._lengths, (0, rows - len(self._lengths)))

    def _seal(self) -> None:
        if not self._new:
            return
        sizes = [len(terms.ids) for _, terms in self._new]
        slots = np.repeat(np.array([slot for slot, _ in self._new], np.int32), sizes)
        ids = np.concatenate([terms.ids for _, terms in self._new])
        counts = np.concatenate([terms.counts for _, terms in self._new])
        self._new = []
        self._segments.append(_sort(ids, slots, counts))
        while len(self._segments) > 1 and 2 * len(self._segments[-1].slots) >= len(self._segments[-2].slots):
            merged = _merge(self._segments[-2:])
            del self._segments[-2:]
            if merged is not None:
                self._segments.append(merged)


def _merge(segments: Sequence[_Segment]) -> _Segment | None:
    if len(segments) < 2:
        return segments[0] if segments else None
    return _sort(
        np.concatenate([np.repeat(segment.terms, np.diff(segment.starts)) for segment in segments]),
        np.concatenate([segment.slots for segment in segments]),
        np.concatenate([segment.counts for segment in segments]),
    )


def _sort(ids: NDArray[np.uint64], slots: NDArray[np.int32], counts: NDArray[np.uint16]) -> _Segment:
    order = np.argsort(ids, kind="stable")  # merges what is sorted already
    return _make(ids[order], slots[order], counts[order])


def _make(ids: NDArray[np.uint64], slots: NDArray[np.int32], counts: NDArray[np.uint16]) -> _Segment:
    terms, begins = np.unique(ids, return_index=True)
    return _Segment(terms, np.append(begins, len(ids)).astype(np.int64), slots, counts)
