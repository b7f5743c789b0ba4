"""Reads passages from Milvus, and ranks them. Blocking; safe for threads. Every row is checked after it was read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssop_rag.core.model import Candidates, Hit, Query
from ssop_rag.core.ranking import FUSED_DEPTH, RankerChoice, fuse, rerank
from ssop_rag.core.record import RecordError
from ssop_rag.core.terms import extract_terms
from ssop_rag.milvus_link import Ask, MilvusLink
from ssop_rag.milvus_rows import ROW_FIELDS, Row, alive, digest, in_collections, passage_key, quote, read_row, spell

Place = tuple[str, str, int]
"""(collection, document, passage)."""


@dataclass(frozen=True, slots=True)
class MilvusReader:
    """The passages of a server, of one embedder. `on_skipped(fault, count)` hears of rows that must not be used."""

    link: MilvusLink
    prefix: str
    embedder: str
    rankers: RankerChoice
    on_skipped: Callable[[str, int], None]

    def passages(self, tenant: str, embedder: str = "") -> str:
        """The Milvus collection of a tenant for an embedder (none named: the current one)."""
        return f"{self.prefix}_{digest(tenant)}_{digest(embedder or self.embedder)[:8]}"

    def rows(self, tenant: str, where: str, now_ms: int, fields: Sequence[str] = tuple(ROW_FIELDS)) -> Iterator[Row]:
        """All rows of a filter that may be used."""
        name = self.passages(tenant)
        if self.link.has(name):
            for page in self.link.pages(name, where, fields):
                for _, row in self._checked(page, tenant, now_ms):
                    yield row

    def rank(
        self, tenant: str, names: Sequence[str], query: Query, k: int, now_ms: int, *, has_vectors: bool = False
    ) -> list[tuple[Hit, Row]]:
        """The best `k` passages of the collections, best first, with their rows."""
        by_vector = [name for name in names if self.rankers.of(name).has_vector]
        by_terms = [name for name in names if self.rankers.of(name).has_terms]
        depth = max(k, FUSED_DEPTH) if by_vector and by_terms else k
        fields = [*ROW_FIELDS, "vector"] if has_vectors else ROW_FIELDS
        lists: list[list[tuple[Hit, Row]]] = []
        if by_vector:
            if query.vector is None:
                raise ValueError("the ranker compares vectors, and the query has none")
            where = f"{in_collections(by_vector)} and {alive(now_ms)}"
            lists.append(self._list(tenant, Ask("vector", query.vector, where, depth, fields), now_ms))
        if by_terms:
            where = f"{in_collections(by_terms)} and {alive(now_ms)}"
            words = spell(extract_terms(query.text))
            lists.append(self._list(tenant, Ask("sparse", words, where, depth, fields), now_ms))
        row_of = {place(hit): row for found in lists for hit, row in found}
        return [(hit, row_of[place(hit)]) for hit in _join([[hit for hit, _ in found] for found in lists])[:k]]

    def rank_within(
        self, tenant: str, names: Sequence[str], candidates: Candidates, query: Query, now_ms: int
    ) -> list[Hit]:
        """The candidates for another query, best first."""
        lists = []
        by_vector = {name for name in names if self.rankers.of(name).has_vector}
        if by_vector and query.vector is not None:
            hits = rerank(candidates, query.vector, len(candidates.hits))
            lists.append([hit for hit in hits if hit.collection in by_vector])
        keys = [passage_key(*place(hit)) for hit in candidates.hits if self.rankers.of(hit.collection).has_terms]
        if keys:
            ask = Ask("sparse", spell(extract_terms(query.text)), f"key in {quote(keys)}", len(keys), ROW_FIELDS)
            lists.append([hit for hit, _ in self._list(tenant, ask, now_ms)])
        return _join(lists)

    def _list(self, tenant: str, ask: Ask, now_ms: int) -> list[tuple[Hit, Row]]:
        """What a search found, best first; ties by name."""
        name = self.passages(tenant)
        is_sparse = ask.field == "sparse"
        if (is_sparse and not ask.data) or not self.link.has(name):
            return []
        pairs = []
        for found, row in self._checked(self.link.search(name, ask), tenant, now_ms):
            # milvus-lite gives the negative of BM25, a server the number itself.
            score = abs(float(found["distance"])) if is_sparse else float(found["distance"])
            pairs.append((Hit(score, row.collection, row.document_id, row.passage), row))
        return sorted(pairs, key=lambda pair: pair[0].rank)

    def _checked(
        self, found: Sequence[Mapping[str, Any]], tenant: str, now_ms: int
    ) -> Iterator[tuple[Mapping[str, Any], Row]]:
        """Rows that may be used; the others are counted and passed over, whatever the filter said."""
        skipped: Counter[str] = Counter()
        for one in found:
            try:
                row = read_row(one, tenant, self.embedder, now_ms)
            except RecordError as error:
                skipped[error.fault] += 1
            else:
                yield one, row
        for fault, count in sorted(skipped.items()):
            self.on_skipped(fault, count)


def place(hit: Hit) -> Place:
    """Which passage it is."""
    return (hit.collection, hit.document_id, hit.passage)


def _join(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    return fuse(lists) if len(lists) > 1 else [hit for hits in lists for hit in hits]
