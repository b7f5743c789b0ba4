"""The embedded index: records in RocksDB, vectors of a tenant in memory once it is used. Blocking; safe for threads.

Every change is one synced write batch, so that a crash leaves the state before or after it. A tenant has one lock: its
searches and changes see each other whole. Versions come from one counter per tenant, so that a collection that is
deleted and made again never shows an old version. Expiry is a change too: it is noticed at the next use.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import rocksdict

from ssop_rag.core import record as codec
from ssop_rag.core.model import (
    Answer,
    Candidates,
    Change,
    CollectionStats,
    Document,
    FoundPassage,
    Hit,
    Query,
    StoredDocument,
    UnknownCollectionError,
)
from ssop_rag.core.ranking import RankerChoice
from ssop_rag.core.record import COLLECTION, DOCUMENT, PASSAGE, TENANT, Record, RecordError
from ssop_rag.core.search import Chosen, gather, prove, rank, rank_within, versions
from ssop_rag.core.table import PassageTable
from ssop_rag.core.terms import Terms, extract_terms
from ssop_rag.database import Database, IndexUnavailableError
from ssop_rag.stored import StoredView

__all__ = ["EmbeddedIndex", "IndexUnavailableError"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Collection:
    version: int
    table: PassageTable
    stale: dict[str, int] = field(default_factory=dict)
    """Passages by document whose vectors another embedder made: kept, listed, never compared."""
    stale_embedder: str = ""

    @property
    def documents(self) -> int:
        return self.table.documents + len(self.stale)

    @property
    def passages(self) -> int:
        return self.table.passages + sum(self.stale.values())

    def remove(self, document_id: str) -> int:
        return self.table.remove(document_id) + self.stale.pop(document_id, 0)


@dataclass(slots=True)
class _Tenant:
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_loaded: bool = False
    counter: int = 0
    collections: dict[str, _Collection] = field(default_factory=dict)


class EmbeddedIndex:
    """The index in a folder. `embedder` and `dim` are those of the vectors that will be put and compared.

    `on_skipped(fault, count)` hears of records that were not loaded, `on_damage(what, count)` of what was lost with
    files that can't be read. Raises IndexUnavailableError.
    """

    def __init__(
        self,
        directory: Path,
        embedder: str,
        dim: int,
        on_skipped: Callable[[str, int], None],
        rankers: RankerChoice = RankerChoice(),  # noqa: B008 - frozen
        *,
        on_damage: Callable[[str, int], None] = lambda _what, _count: None,
    ) -> None:
        self._embedder: Final = embedder
        self._dim: Final = dim
        self._rankers: Final = rankers
        self._on_skipped = on_skipped
        self._db: Final = Database(directory, on_damage)
        self._tenants: dict[str, _Tenant] = {}
        self._tenants_lock = threading.Lock()

    def close(self) -> None:
        """Close the folder. No other method may run or be called after."""
        self._db.close()

    def upsert(self, name: str, collection: str, documents: Sequence[Document], now_ms: int) -> Change:
        """Add or replace a tenant's documents; durable when it returns. `name` is the tenant."""
        terms = [[extract_terms(text) for text in document.passages] for document in documents]
        with self._opened(name, now_ms) as tenant:
            version = tenant.counter + 1
            batch = self._begin(name, collection, version)
            for document, its_terms in zip(documents, terms, strict=True):
                self._erase(batch, name, collection, document.document_id)
                self._put(batch, name, collection, document, its_terms, version=version)
            self._db.write(batch)
            tenant.counter = version
            held = tenant.collections.setdefault(collection, _Collection(version, PassageTable(collection, self._dim)))
            held.version = version
            for document, its_terms in zip(documents, terms, strict=True):
                held.table.put(document.document_id, document.vectors, document.expires_at_ms, its_terms)
                held.stale.pop(document.document_id, None)
        return Change(len(documents), sum(len(document.passages) for document in documents), version)

    def delete(self, name: str, collection: str, document_ids: Sequence[str], now_ms: int) -> Change:
        """Delete documents that are there; the version stays when none was."""
        with self._opened(name, now_ms) as tenant:
            held = tenant.collections.get(collection)
            if held is None:
                return Change(0, 0, 0)
            return self._delete(name, tenant, collection, held, document_ids)

    def drop(self, name: str, collection: str, now_ms: int) -> Change:
        """Delete a collection with all its documents."""
        with self._opened(name, now_ms) as tenant:
            held = tenant.collections.get(collection)
            if held is None:
                return Change(0, 0, 0)
            version = tenant.counter + 1
            batch = rocksdict.WriteBatch(raw_mode=True)
            batch.put(codec.encode_key(TENANT, name), self._encode(name, version))
            batch.delete(codec.encode_key(COLLECTION, name, collection))
            for kind in (DOCUMENT, PASSAGE):
                for key, _ in self._below(codec.encode_key(kind, name, collection)):
                    batch.delete(key)
            self._db.write(batch)
            tenant.counter = version
            del tenant.collections[collection]
            return Change(held.documents, held.passages, version)

    def stats(self, name: str, now_ms: int) -> list[CollectionStats]:
        """The tenant's collections, by name."""
        with self._opened(name, now_ms) as tenant:
            return [
                CollectionStats(
                    collection,
                    held.documents,
                    held.passages,
                    held.version,
                    self._embedder if held.table.passages or not held.stale else held.stale_embedder,
                )
                for collection, held in sorted(tenant.collections.items())
            ]

    def replace(self, name: str, collection: str, documents: Sequence[Document], now_ms: int) -> Change:
        """Make these the documents of a collection, in one change; durable when it returns."""
        terms = [[extract_terms(text) for text in document.passages] for document in documents]
        with self._opened(name, now_ms) as tenant:
            version = tenant.counter + 1
            batch = self._begin(name, collection, version)
            for kind in (DOCUMENT, PASSAGE):
                for key, _ in self._below(codec.encode_key(kind, name, collection)):
                    batch.delete(key)
            held = _Collection(version, PassageTable(collection, self._dim))
            for document, its_terms in zip(documents, terms, strict=True):
                self._put(batch, name, collection, document, its_terms, version=version)
                held.table.put(document.document_id, document.vectors, document.expires_at_ms, its_terms)
            self._db.write(batch)
            tenant.counter = version
            tenant.collections[collection] = held
        return Change(len(documents), sum(len(document.passages) for document in documents), version)

    def held(self, name: str, collection: str, document_ids: Sequence[str], now_ms: int) -> dict[str, StoredDocument]:
        """Those of the documents that are there with vectors of this embedder, by id."""
        with self._opened(name, now_ms) as tenant:
            if collection not in tenant.collections:
                return {}
            view = StoredView(self._db, name, self._embedder, self._dim)
            found = (view.find(collection, document_id) for document_id in document_ids)
            return {document.document_id: document for document in found if document is not None}

    def documents(
        self, name: str, collection: str, after: str, limit: int, now_ms: int
    ) -> tuple[list[StoredDocument], int]:
        """Up to `limit` documents of a collection after the one called `after`, and the collection's version.

        Raises UnknownCollectionError.
        """
        with self._opened(name, now_ms) as tenant:
            (held,) = self._choose(tenant, [collection])
            view = StoredView(self._db, name, "", 0)
            return list(islice(view.after(collection, after), limit)), held.version

    def dump(
        self, name: str, names: Sequence[str], take: Callable[[str, Document], None], now_ms: int
    ) -> list[CollectionStats]:
        """Hand over the documents of the collections (none named: all) as they are at one instant.

        Those with vectors of another embedder are left out. Changes go on meanwhile. Raises UnknownCollectionError.
        """
        with self._opened(name, now_ms) as tenant:
            chosen = versions(self._choose(tenant, names))
            view = StoredView(self._db.snapshot(), name, self._embedder, self._dim)
        stats = []
        for collection, version in chosen:
            documents = passages = 0
            for document in view.read(collection, now_ms):
                take(collection, document)
                documents += 1
                passages += len(document.passages)
            stats.append(CollectionStats(collection, documents, passages, version, self._embedder))
        return stats

    def search(self, name: str, names: Sequence[str], query: Query, k: int, now_ms: int) -> Answer:
        """The best `k` passages of the collections (none named: all). Raises UnknownCollectionError."""
        with self._opened(name, now_ms) as tenant:
            chosen = self._choose(tenant, names)
            return Answer(self._read(name, rank(chosen, query, k, now_ms), now_ms), versions(chosen))

    def candidates(self, name: str, names: Sequence[str], prefix: Query, count: int, now_ms: int) -> Candidates:
        """The best `count` passages without their texts. Raises UnknownCollectionError."""
        with self._opened(name, now_ms) as tenant:
            return gather(self._choose(tenant, names), names, prefix, count, now_ms)

    def search_within(
        self, name: str, candidates: Candidates, query: Query, k: int, now_ms: int, *, is_lossy: bool
    ) -> Answer | None:
        """See VectorStore."""
        with self._opened(name, now_ms) as tenant:
            chosen = self._choose(tenant, candidates.names)
            if versions(chosen) != candidates.versions:
                return None
            hits = prove([one.ranker for one in chosen], candidates, query, k)
            if hits is None and is_lossy:
                hits = rank_within(chosen, candidates, query, k, now_ms)
            return None if hits is None else Answer(self._read(name, hits, now_ms), candidates.versions)

    def has_collections(self, name: str, names: Sequence[str], now_ms: int) -> bool:
        """Whether there is anything to search. Raises UnknownCollectionError."""
        with self._opened(name, now_ms) as tenant:
            return bool(self._choose(tenant, names))

    @contextmanager
    def _opened(self, name: str, now_ms: int) -> Iterator[_Tenant]:
        """The tenant, locked, loaded, and without what has expired."""
        # What was loaded may differ from what a failed write left on the disk.
        self._db.reopen_failed(now_ms, self._tenants.clear)
        with self._db.inside():
            tenant = self._tenant(name)
            with tenant.lock:
                self._refresh(name, tenant, now_ms)
                yield tenant

    def _choose(self, tenant: _Tenant, names: Sequence[str]) -> list[Chosen]:
        """The collections that are meant, in order of their names."""
        for name in names:
            if name not in tenant.collections:
                raise UnknownCollectionError(name)
        return [
            Chosen(name, held.version, held.table, self._rankers.of(name))
            for name, held in sorted(tenant.collections.items())
            if not names or name in names
        ]

    def _tenant(self, name: str) -> _Tenant:
        with self._tenants_lock:
            return self._tenants.setdefault(name, _Tenant())

    def _refresh(self, name: str, tenant: _Tenant, now_ms: int) -> None:
        """Load the tenant at its first use, and delete what has expired."""
        if not tenant.is_loaded:
            self._load(name, tenant)
        for collection, held in tenant.collections.items():
            if expired := held.table.expired(now_ms):
                self._delete(name, tenant, collection, held, expired)

    def _load(self, name: str, tenant: _Tenant) -> None:
        counter = self._db.get(codec.encode_key(TENANT, name))
        if counter is None:
            tenant.is_loaded = True
            return
        # Without the counter versions would repeat, so a record that can't be read stops this tenant's use.
        tenant.counter = codec.decode_record(counter, tenant=name).version
        loaded: dict[str, _Collection] = {}
        for key, data in self._below(codec.encode_key(COLLECTION, name)):
            (_, collection), _ = codec.decode_key(key)
            version = codec.decode_record(data, tenant=name).version
            loaded[collection] = _Collection(version, PassageTable(collection, self._dim))
        skipped: Counter[str] = Counter()
        for collection, held in loaded.items():
            self._load_collection(name, collection, held, skipped)
        for fault, count in sorted(skipped.items()):
            self._on_skipped(fault, count)
            _log.error("documents were not loaded", extra={"fault": fault, "count": count, "tenant": name})
        tenant.collections, tenant.is_loaded = loaded, True

    def _load_collection(self, name: str, collection: str, held: _Collection, skipped: Counter[str]) -> None:
        stored = self._below(codec.encode_key(PASSAGE, name, collection))
        for document_id, items in groupby(stored, key=lambda item: codec.decode_key(item[0])[0][2]):
            data = [value for _, value in items]
            try:
                records = [
                    codec.decode_record(value, tenant=name, embedder=self._embedder, dim=self._dim) for value in data
                ]
            except RecordError as error:
                skipped[error.fault] += 1
                if error.fault == "embedder":
                    held.stale[document_id] = len(data)
                    held.stale_embedder = codec.decode_record(data[0], tenant=name).embedder
                continue
            vectors = np.stack([record.vector for record in records if record.vector is not None])
            terms = [record.terms or extract_terms(str(record.fields["text"])) for record in records]
            held.table.put(document_id, vectors, records[0].expires_at_ms, terms)

    def _delete(
        self, name: str, tenant: _Tenant, collection: str, held: _Collection, document_ids: Sequence[str]
    ) -> Change:
        version = tenant.counter + 1
        batch = self._begin(name, collection, version)
        gone = [
            document_id
            for document_id in dict.fromkeys(document_ids)
            if self._erase(batch, name, collection, document_id)
        ]
        if not gone:
            return Change(0, 0, held.version)
        self._db.write(batch)
        tenant.counter = held.version = version
        return Change(len(gone), sum(held.remove(document_id) for document_id in gone), version)

    def _begin(self, name: str, collection: str, version: int) -> Any:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.put(codec.encode_key(TENANT, name), self._encode(name, version))
        batch.put(codec.encode_key(COLLECTION, name, collection), self._encode(name, version))
        return batch

    def _encode(self, name: str, version: int) -> bytes:
        return codec.encode_record(Record(name, "", 0, version, {}))

    def _put(
        self, batch: Any, name: str, collection: str, document: Document, terms: Sequence[Terms], *, version: int
    ) -> None:
        expires_at_ms = document.expires_at_ms
        fields = {
            "title": document.title,
            "attributes": dict(document.attributes),
            "passages": len(document.passages),
            "fingerprint": document.fingerprint,
        }
        batch.put(
            codec.encode_key(DOCUMENT, name, collection, document.document_id),
            codec.encode_record(Record(name, self._embedder, expires_at_ms, version, fields)),
        )
        for number, (text, vector) in enumerate(zip(document.passages, document.vectors, strict=True)):
            record = Record(name, self._embedder, expires_at_ms, version, {"text": text}, vector, terms[number])
            batch.put(
                codec.encode_key(PASSAGE, name, collection, document.document_id, number=number),
                codec.encode_record(record),
            )

    def _erase(self, batch: Any, name: str, collection: str, document_id: str) -> bool:
        key = codec.encode_key(DOCUMENT, name, collection, document_id)
        if self._db.get(key) is None:
            return False
        batch.delete(key)
        for passage_key, _ in self._below(codec.encode_key(PASSAGE, name, collection, document_id)):
            batch.delete(passage_key)
        return True

    def _read(self, name: str, hits: Sequence[Hit], now_ms: int) -> list[FoundPassage]:
        found = []
        for hit in hits:
            key = codec.encode_key(PASSAGE, name, hit.collection, hit.document_id, number=hit.passage)
            data = self._db.get(key)
            if data is None:
                raise RecordError("missing")
            record = codec.decode_record(data, tenant=name, embedder=self._embedder, dim=self._dim)
            if record.expires_at_ms and record.expires_at_ms <= now_ms:
                raise RecordError("expired")
            found.append(FoundPassage(hit, str(record.fields["text"])))
        return found

    def _below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._db.walk(prefix):
            if not key.startswith(prefix):
                return
            yield key, value
