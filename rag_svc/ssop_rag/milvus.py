"""The index on Milvus: the same methods as EmbeddedIndex. Blocking; safe for threads.

What differs from the embedded index: a document is replaced passage by passage, so that a search meanwhile may see some
of both; the numbers behind BM25 are those of all collections of the tenant; scores that are equal to the last bit may
be cut anywhere by the server. The version of a collection changes before and after each change, and never comes again,
as it is made from the clock. What has expired is not found from that moment, and deleted at the next use.
"""

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from ssop_rag.core.model import (
    Answer,
    Candidates,
    Change,
    CollectionStats,
    Document,
    FoundPassage,
    Query,
    StoredDocument,
    UnknownCollectionError,
)
from ssop_rag.core.ranking import Ranker
from ssop_rag.core.record import RecordError
from ssop_rag.core.search import prove
from ssop_rag.milvus_reader import MilvusReader, place
from ssop_rag.milvus_rows import (
    IDS_A_FILTER,
    ROW_FIELDS,
    Row,
    VersionRow,
    alive,
    digest,
    expired,
    in_collections,
    make_rows,
    of_documents,
    passage_key,
    quote,
    surplus,
)

T = TypeVar("T")
_ROWS_A_CALL: Final = 500
_DOCUMENTS_A_CALL: Final = 20
_STEPS_A_MS: Final = 1_000


class MilvusIndex:
    """The index on a server; `dim` is that of the vectors. Methods raise MilvusError where the server fails."""

    def __init__(self, reader: MilvusReader, dim: int) -> None:
        self._reader = reader
        self._link = reader.link
        self._embedder = reader.embedder
        self._rankers = reader.rankers
        self._dim = dim
        self._versions = f"{reader.prefix}_versions"
        self._last_version = random.SystemRandom().randrange(_STEPS_A_MS)
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def upsert(self, tenant: str, collection: str, documents: Sequence[Document], now_ms: int) -> Change:
        """See VectorStore."""
        with self._writing(tenant):
            begun = self._write(tenant, collection, documents, now_ms)
            for where in surplus(documents):
                self._link.delete(self._reader.passages(tenant), f"{in_collections([collection])} and {where}")
            version = self._renew(tenant, begun, now_ms).version
        return Change(len(documents), sum(len(document.passages) for document in documents), version)

    def replace(self, tenant: str, collection: str, documents: Sequence[Document], now_ms: int) -> Change:
        """See VectorStore."""
        with self._writing(tenant):
            begun = self._write(tenant, collection, documents, now_ms)
            where = f"{in_collections([collection])} and version < {begun.version}"
            self._link.delete(self._reader.passages(tenant), where)
            version = self._renew(tenant, begun, now_ms).version
        return Change(len(documents), sum(len(document.passages) for document in documents), version)

    def delete(self, tenant: str, collection: str, document_ids: Sequence[str], now_ms: int) -> Change:
        """See VectorStore."""
        with self._writing(tenant):
            held = self._collections(tenant, now_ms).get(collection)
            name, documents, passages = self._reader.passages(tenant), 0, 0
            if held is None or not self._link.has(name):
                return Change(0, 0, held.version if held is not None else 0)
            for some in _parts(list(dict.fromkeys(document_ids)), IDS_A_FILTER):
                where = f"{in_collections([collection])} and {of_documents(some)}"
                found = list(self._link.pages(name, where, ["passage"]))
                if not found:
                    continue
                held = self._renew(tenant, held, now_ms)
                self._link.delete(name, where)
                documents += sum(1 for page in found for row in page if row["passage"] == 0)
                passages += sum(map(len, found))
            if documents:
                held = self._renew(tenant, held, now_ms)
            return Change(documents, passages, held.version)

    def drop(self, tenant: str, collection: str, now_ms: int) -> Change:
        """See VectorStore."""
        with self._writing(tenant):
            held = self._collections(tenant, now_ms).get(collection)
            if held is None:
                return Change(0, 0, 0)
            (stats,) = self._count(tenant, [held])
            self._link.delete(self._versions, f"key in {quote([digest(tenant, collection)])}")
            for name in {self._reader.passages(tenant), self._reader.passages(tenant, held.embedder)}:
                if self._link.has(name):
                    self._link.delete(name, in_collections([collection]))
            return Change(stats.documents, stats.passages, self._next_version(held.version, now_ms))

    def stats(self, tenant: str, now_ms: int) -> list[CollectionStats]:
        """See VectorStore."""
        return self._count(tenant, list(self._collections(tenant, now_ms).values()))

    def has_collections(self, tenant: str, names: Sequence[str], now_ms: int) -> bool:
        """See VectorStore."""
        return bool(self._choose(tenant, names, now_ms))

    def held(
        self, tenant: str, collection: str, document_ids: Sequence[str], now_ms: int
    ) -> Mapping[str, StoredDocument]:
        """See VectorStore."""
        found: dict[str, StoredDocument] = {}
        for some in _parts(document_ids, IDS_A_FILTER):
            where = f"{in_collections([collection])} and {of_documents(some)} and passage == 0 and {alive(now_ms)}"
            for row in self._reader.rows(tenant, where, now_ms):
                found[row.document_id] = row.stored()
        return found

    def documents(
        self, tenant: str, collection: str, after: str, limit: int, now_ms: int
    ) -> tuple[list[StoredDocument], int]:
        """See VectorStore. Reads the heads of the whole collection for each page."""
        (held,) = self._choose(tenant, [collection], now_ms)
        where = f"{in_collections([collection])} and passage == 0 and {alive(now_ms)}"
        stored = sorted(
            (row.stored() for row in self._reader.rows(tenant, where, now_ms)), key=lambda one: one.document_id
        )
        return [one for one in stored if one.document_id > after][:limit], held.version

    def dump(
        self, tenant: str, names: Sequence[str], take: Callable[[str, Document], None], now_ms: int
    ) -> list[CollectionStats]:
        """See VectorStore. Raises RecordError `changed` when a collection changes meanwhile."""
        chosen = self._choose(tenant, names, now_ms)
        stats = []
        for held in chosen:
            documents = passages = 0
            where = f"{in_collections([held.collection])} and passage == 0 and {alive(now_ms)}"
            heads = list(self._reader.rows(tenant, where, now_ms))
            for some in _parts(heads, _DOCUMENTS_A_CALL):
                for document in self._whole(tenant, held.collection, some, now_ms):
                    take(held.collection, document)
                    documents += 1
                    passages += len(document.passages)
            stats.append(CollectionStats(held.collection, documents, passages, held.version, self._embedder))
        if self._choose(tenant, names, now_ms) != chosen:
            raise RecordError("changed")
        return stats

    def search(self, tenant: str, names: Sequence[str], query: Query, k: int, now_ms: int) -> Answer:
        """See VectorStore."""
        chosen = self._choose(tenant, names, now_ms)
        found = self._reader.rank(tenant, _names(chosen), query, k, now_ms)
        return Answer([FoundPassage(hit, row.text) for hit, row in found], _versions(chosen))

    def candidates(self, tenant: str, names: Sequence[str], prefix: Query, count: int, now_ms: int) -> Candidates:
        """See VectorStore."""
        chosen = self._choose(tenant, names, now_ms)
        found = self._reader.rank(tenant, _names(chosen), prefix, count, now_ms, has_vectors=True)
        vectors = [row.vector for _, row in found if row.vector is not None]
        return Candidates(
            prefix,
            tuple(names),
            _versions(chosen),
            [hit for hit, _ in found],
            np.stack(vectors) if vectors else np.empty((0, self._dim), np.float32),
            is_complete=self._link.is_exact and len(found) < count and Ranker.BM25 not in self._rankers_of(chosen),
        )

    def search_within(
        self, tenant: str, candidates: Candidates, query: Query, k: int, now_ms: int, *, is_lossy: bool
    ) -> Answer | None:
        """See VectorStore."""
        chosen = self._choose(tenant, candidates.names, now_ms)
        if _versions(chosen) != candidates.versions:
            return None
        is_provable = self._link.is_exact or candidates.prefix.text == query.text
        hits = prove(self._rankers_of(chosen), candidates, query, k) if is_provable else None
        if hits is None and is_lossy:
            hits = self._reader.rank_within(tenant, _names(chosen), candidates, query, now_ms)[:k]
        if hits is None:
            return None
        keys = [passage_key(*place(hit)) for hit in hits]
        text_of = {
            (row.collection, row.document_id, row.passage): row.text
            for row in (self._reader.rows(tenant, f"key in {quote(keys)}", now_ms) if keys else ())
        }
        if any(place(hit) not in text_of for hit in hits):
            return None
        return Answer([FoundPassage(hit, text_of[place(hit)]) for hit in hits], candidates.versions)

    def _write(self, tenant: str, collection: str, documents: Sequence[Document], now_ms: int) -> VersionRow:
        """Write the rows of documents under a new version, which the collection has from before."""
        self._link.make_versions(self._versions)
        self._link.make_passages(self._reader.passages(tenant), self._dim)
        held = self._collections(tenant, now_ms).get(collection)
        if held is None:  # what a deletion that was cut short left
            self._link.delete(self._reader.passages(tenant), in_collections([collection]))
        times = [document.expires_at_ms for document in documents if document.expires_at_ms]
        if held is not None and held.next_expiry_ms:
            times.append(held.next_expiry_ms)
        above = held.version if held is not None else 0
        begun = self._renew(tenant, VersionRow(collection, self._embedder, above, min(times, default=0)), now_ms)
        rows = [row for one in documents for row in make_rows(tenant, self._embedder, collection, one, begun.version)]
        for some in _parts(rows, _ROWS_A_CALL):
            self._link.upsert(self._reader.passages(tenant), some)
        return begun

    def _choose(self, tenant: str, names: Sequence[str], now_ms: int) -> list[VersionRow]:
        found = self._collections(tenant, now_ms)
        for name in names:
            if name not in found:
                raise UnknownCollectionError(name)
        return [one for name, one in sorted(found.items()) if not names or name in names]

    def _collections(self, tenant: str, now_ms: int) -> dict[str, VersionRow]:
        """The tenant's collections by name, after what has expired was deleted."""
        if not self._link.has(self._versions):
            return {}
        where = f'tenant_key == "{digest(tenant)}"'
        found: dict[str, VersionRow] = {}
        fields = ["tenant", "collection", "embedder", "version", "next_expiry_ms"]
        for row in self._link.query(self._versions, where, fields):
            if row["tenant"] != tenant:
                self._reader.on_skipped("tenant", 1)
                continue
            one = VersionRow(
                str(row["collection"]), str(row["embedder"]), int(row["version"]), int(row["next_expiry_ms"])
            )
            if 0 < one.next_expiry_ms <= now_ms:
                one = self._expire(tenant, one, now_ms)
            found[one.collection] = one
        return dict(sorted(found.items()))

    def _expire(self, tenant: str, held: VersionRow, now_ms: int) -> VersionRow:
        name, mine = self._reader.passages(tenant), in_collections([held.collection])
        next_ms = 0
        has_changed = False
        if self._link.has(name):
            has_changed = self._link.count(name, f"{mine} and {expired(now_ms)}") > 0
            if has_changed:
                self._link.delete(name, f"{mine} and {expired(now_ms)}")
            for page in self._link.pages(name, f"{mine} and expires_at_ms > {now_ms}", ["expires_at_ms"]):
                first = min(int(row["expires_at_ms"]) for row in page)
                next_ms = min(next_ms or first, first)
        left = replace(held, next_expiry_ms=next_ms)
        if has_changed:
            return self._renew(tenant, left, now_ms)
        self._put_version(tenant, left)
        return left

    def _renew(self, tenant: str, held: VersionRow, now_ms: int) -> VersionRow:
        """Give a collection a new version."""
        renewed = replace(held, version=self._next_version(held.version, now_ms))
        self._put_version(tenant, renewed)
        return renewed

    def _put_version(self, tenant: str, held: VersionRow) -> None:
        row = {
            "key": digest(tenant, held.collection),
            "tenant_key": digest(tenant),
            "tenant": tenant,
            "collection": held.collection,
            "embedder": held.embedder,
            "version": held.version,
            "next_expiry_ms": held.next_expiry_ms,
            "vector": [1.0, 0.0],
        }
        self._link.upsert(self._versions, [row])

    def _next_version(self, above: int, now_ms: int) -> int:
        with self._lock:
            self._last_version = max(self._last_version + 1, above + 1, now_ms * _STEPS_A_MS)
            return self._last_version

    def _count(self, tenant: str, chosen: Sequence[VersionRow]) -> list[CollectionStats]:
        stats = []
        for one in chosen:
            name, mine = self._reader.passages(tenant, one.embedder), in_collections([one.collection])
            is_there = self._link.has(name)
            documents = self._link.count(name, f"{mine} and passage == 0") if is_there else 0
            passages = self._link.count(name, mine) if is_there else 0
            stats.append(CollectionStats(one.collection, documents, passages, one.version, one.embedder))
        return stats

    def _whole(self, tenant: str, collection: str, heads: Sequence[Row], now_ms: int) -> Iterator[Document]:
        where = f"{in_collections([collection])} and {of_documents([head.document_id for head in heads])}"
        parts: dict[str, list[Row]] = {}
        for row in self._reader.rows(tenant, where, now_ms, [*ROW_FIELDS, "vector"]):
            parts.setdefault(row.document_id, []).append(row)
        for head in heads:
            stored = head.stored()
            rows = sorted(parts.get(head.document_id, []), key=lambda row: row.passage)
            vectors = [row.vector for row in rows if row.vector is not None]
            if len(vectors) != stored.passages:
                raise RecordError("missing")
            yield Document(
                stored.document_id,
                stored.title,
                stored.attributes,
                stored.expires_at_ms,
                [row.text for row in rows],
                np.stack(vectors),
                stored.fingerprint,
            )

    def _rankers_of(self, chosen: Sequence[VersionRow]) -> list[Ranker]:
        return [self._rankers.of(one.collection) for one in chosen]

    def _writing(self, tenant: str) -> threading.Lock:
        """One change of a tenant at a time in this process."""
        with self._lock:
            return self._locks.setdefault(tenant, threading.Lock())


def _versions(chosen: Sequence[VersionRow]) -> tuple[tuple[str, int], ...]:
    return tuple((one.collection, one.version) for one in chosen)


def _names(chosen: Sequence[VersionRow]) -> list[str]:
    return [one.collection for one in chosen]


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))
