"""Exact cosine ranking, fusion with other rankings, and the proof that a prefetched list holds the answer.

Vectors have length 1, so that a dot product is a cosine. A float32 product over `dim` terms differs from the exact one
by at most `dim * 2**-24` (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); rows that near the
k-th one are summed again in float64, row by row, so that equal vectors score equally wherever they are stored.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ssop_rag.core.model import Candidates, Hit, Matrix, Vector

_PROOF_SLACK = 1e-6
"""Cosine that rounding may cost: rows and queries have length 1 only to float32 precision."""

FUSED_DEPTH: Final = 128
"""Hits of each list that are fused, whatever is asked for: the best 4 are then the beginning of the best 32."""
_FUSION_RANK: Final = 60


class Ranker(Enum):
    """What orders the passages of a collection."""

    VECTOR = "vector"
    BM25 = "bm25"
    HYBRID = "hybrid"
    """Both, fused by rank."""

    @property
    def has_vector(self) -> bool:
        """Whether it compares vectors."""
        return self is not Ranker.BM25

    @property
    def has_terms(self) -> bool:
        """Whether it counts terms."""
        return self is not Ranker.VECTOR


@dataclass(frozen=True, slots=True)
class RankerChoice:
    """The ranker of each collection: its own, or the default."""

    default: Ranker = Ranker.HYBRID
    by_collection: Mapping[str, Ranker] = field(default_factory=dict)

    def of(self, collection: str) -> Ranker:
        """The ranker of a collection."""
        return self.by_collection.get(collection, self.default)

    def needs_vector(self, names: Sequence[str]) -> bool:
        """Whether a search of the collections (none named: any of them) compares vectors."""
        rankers = [self.of(name) for name in names] or [self.default, *self.by_collection.values()]
        return any(ranker.has_vector for ranker in rankers)


def unit_rows(vectors: NDArray[np.floating]) -> Matrix:
    """(n, dim) rows scaled to length 1, as float32. Raises ValueError for a zero or non-finite row."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    if rows.size and not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("a vector is zero or not finite")
    return np.ascontiguousarray(rows / lengths if rows.size else rows, dtype=np.float32)


def exact_scores(matrix: Matrix, query: Vector) -> NDArray[np.float64]:
    """(n,) float64 cosines of the rows of (n, dim) with (dim,); each depends on its row alone."""
    products: NDArray[np.float64] = (matrix.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    return products


def scan(
    matrix: Matrix, is_live: NDArray[np.bool_], query: Vector, k: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Rows that may be among the best `k` of (n, dim) under the (n,) mask, with their float64 cosines, unsorted.

    At least min(k, live rows), and all rows that tie with the k-th, so that the caller's tie-break is exact.
    """
    live = int(is_live.sum())
    if live == 0 or k <= 0:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float64)
    scores = matrix @ query
    scores[~is_live] = -np.inf
    k = min(k, live)
    kth = np.partition(scores, len(scores) - k)[len(scores) - k]
    slack = 2 * matrix.shape[1] * 2.0**-24
    rows = np.flatnonzero(scores >= kth - slack)
    return rows, exact_scores(matrix[rows], query)


def merge_top_k(lists: Iterable[Sequence[Hit]], k: int) -> list[Hit]:
    """The best `k` of lists that are each sorted best first."""
    return list(islice(heapq.merge(*lists, key=lambda hit: hit.rank), k))


def best_rows(scores: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    """Rows of the best `k` positive scores of (n,), and all that tie with the last of them, unsorted."""
    positive = int((scores > 0).sum())
    if positive == 0 or k <= 0:
        return np.empty(0, dtype=np.intp)
    k = min(k, positive)
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])


def fuse(lists: Iterable[Sequence[Hit]]) -> list[Hit]:
    """One list from several that are each sorted best first: the sum of 1 / (60 + rank), ranks from 1.

    Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009). Of each list the first `FUSED_DEPTH` count.
    """
    scores: dict[tuple[str, str, int], float] = {}
    for hits in lists:
        for rank, hit in enumerate(hits[:FUSED_DEPTH], start=1):
            place = (hit.collection, hit.document_id, hit.passage)
            scores[place] = scores.get(place, 0.0) + 1 / (_FUSION_RANK + rank)
    return sorted((Hit(score, *place) for place, score in scores.items()), key=lambda hit: hit.rank)


def rerank(candidates: Candidates, query: Vector, k: int) -> list[Hit]:
    """The best `k` of the candidates for another query."""
    scores = exact_scores(candidates.vectors, query)
    hits = [
        Hit(float(score), hit.collection, hit.document_id, hit.passage)
        for hit, score in zip(candidates.hits, scores, strict=True)
    ]
    return sorted(hits, key=lambda hit: hit.rank)[:k]


def prove_top_k(candidates: Candidates, prefix: Vector, query: Vector, k: int) -> list[Hit] | None:
    """The exact best `k` for `query`, if the candidates fetched for `prefix` are sure to hold them; else None.

    Angles on the sphere obey the triangle inequality: a passage outside the list is at least as far from the prefix
    as the last candidate, hence at least that angle less the angle between prefix and query away from the query.
    The list is the answer when its k-th passage is nearer than that.
    """
    hits = rerank(candidates, query, k)
    if candidates.is_complete:
        return hits
    if len(hits) < k or k <= 0:
        return None
    worst = candidates.hits[-1].score
    if np.array_equal(prefix, query):
        return hits
    turn = math.acos(_clip(float(exact_scores(prefix[None, :], query)[0]) - _PROOF_SLACK))
    nearest = max(0.0, math.acos(_clip(worst + _PROOF_SLACK)) - turn)
    return hits if hits[-1].score > math.cos(nearest) + _PROOF_SLACK else None


def _clip(cosine: float) -> float:
    return min(1.0, max(-1.0, cosine))
