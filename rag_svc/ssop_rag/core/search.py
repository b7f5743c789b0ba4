"""Ranks the passages of several collections, each by its own ranker, as one list.

Vectors are compared over all collections that have them, terms are counted over all that count them (with the numbers
of those collections together), and where both kinds of list exist they are fused by rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssop_rag.core.lexical import CorpusStats
from ssop_rag.core.model import Candidates, Hit, Matrix, Query, Vector, Versions
from ssop_rag.core.ranking import FUSED_DEPTH, Ranker, fuse, merge_top_k, prove_top_k, rerank
from ssop_rag.core.table import PassageTable
from ssop_rag.core.terms import extract_terms


@dataclass(frozen=True, slots=True)
class Chosen:
    """A collection that is searched."""

    name: str
    version: int
    table: PassageTable
    ranker: Ranker


def versions(chosen: Sequence[Chosen]) -> Versions:
    """What a search of these collections sees."""
    return tuple((one.name, one.version) for one in chosen)


def rank(chosen: Sequence[Chosen], query: Query, k: int, now_ms: int) -> list[Hit]:
    """The best `k` passages, best first."""
    by_vector, by_terms = _split(chosen)
    depth = max(k, FUSED_DEPTH) if by_vector and by_terms else k
    lists = []
    if by_vector:
        vector = _require_vector(query)
        lists.append(merge_top_k((one.table.search(vector, depth, now_ms) for one in by_vector), depth))
    if by_terms:
        terms = extract_terms(query.text)
        stats = _add_up([one.table.stats(terms, now_ms) for one in by_terms])
        lists.append(merge_top_k((one.table.search_terms(terms, stats, depth, now_ms) for one in by_terms), depth))
    return (fuse(lists) if len(lists) > 1 else [hit for hits in lists for hit in hits])[:k]


def gather(chosen: Sequence[Chosen], names: Sequence[str], prefix: Query, count: int, now_ms: int) -> Candidates:
    """The best `count` passages for a prefix, with their vectors. `names` are the collections as they were named."""
    hits = rank(chosen, prefix, count, now_ms)
    passages = sum(one.table.passages for one in chosen)
    return Candidates(
        prefix, tuple(names), versions(chosen), hits, _vectors(chosen, hits), is_complete=len(hits) == passages
    )


def prove(rankers: Sequence[Ranker], candidates: Candidates, query: Query, k: int) -> list[Hit] | None:
    """The best `k`, where the candidates are sure to hold them; else None. `rankers`: of the collections.

    Fused and BM25 lists have no bound like the triangle inequality: there only a prefix that is the whole text proves.
    """
    if candidates.prefix.text == query.text and len(candidates.hits) >= k:
        return list(candidates.hits[:k])
    if any(ranker is not Ranker.VECTOR for ranker in rankers):
        return None
    prefix = candidates.prefix.vector
    return None if prefix is None else prove_top_k(candidates, prefix, _require_vector(query), k)


def rank_within(chosen: Sequence[Chosen], candidates: Candidates, query: Query, k: int, now_ms: int) -> list[Hit]:
    """The best `k` of the candidates for the query, whatever else there is: not the answer of a search.

    Each list is as `rank` has it, without the passages that are not among the candidates.
    """
    by_vector, by_terms = _split(chosen)
    lists = []
    if by_vector:
        compared = {one.name for one in by_vector}
        hits = rerank(candidates, _require_vector(query), len(candidates.hits))
        lists.append([hit for hit in hits if hit.collection in compared])
    if by_terms:
        terms = extract_terms(query.text)
        stats = _add_up([one.table.stats(terms, now_ms) for one in by_terms])
        lists.append(
            merge_top_k(
                (one.table.score_terms(terms, stats, _of(one, candidates.hits), now_ms) for one in by_terms),
                len(candidates.hits),
            )
        )
    return (fuse(lists) if len(lists) > 1 else [hit for hits in lists for hit in hits])[:k]


def _split(chosen: Sequence[Chosen]) -> tuple[list[Chosen], list[Chosen]]:
    return [one for one in chosen if one.ranker.has_vector], [one for one in chosen if one.ranker.has_terms]


def _require_vector(query: Query) -> Vector:
    if query.vector is None:
        raise ValueError("the ranker compares vectors, and the query has none")
    return query.vector


def _add_up(stats: Sequence[CorpusStats]) -> CorpusStats:
    total = stats[0]
    for other in stats[1:]:
        total += other
    return total


def _of(one: Chosen, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if hit.collection == one.name]


def _vectors(chosen: Sequence[Chosen], hits: Sequence[Hit]) -> Matrix:
    """(hits, dim), in the order of the hits."""
    if not hits:
        return np.empty((0, 0), np.float32)
    row_of: dict[tuple[str, str, int], Vector] = {}
    for one in chosen:
        own = _of(one, hits)
        for hit, row in zip(own, one.table.vectors(own) if own else (), strict=True):
            row_of[hit.collection, hit.document_id, hit.passage] = row
    return np.stack([row_of[hit.collection, hit.document_id, hit.passage] for hit in hits])
