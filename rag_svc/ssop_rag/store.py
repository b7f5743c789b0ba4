"""Where documents live: the port, keyed by tenant, and its implementation on threads."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError, invalid_request
from ssop_rag.core.model import (
    Answer,
    Candidates,
    Change,
    CollectionStats,
    Document,
    DocumentTooLargeError,
    Query,
    StoredDocument,
    UnknownCollectionError,
)
from ssop_rag.core.record import RecordError
from ssop_rag.embedded import EmbeddedIndex, IndexUnavailableError
from ssop_rag.milvus import MilvusIndex
from ssop_rag.milvus_link import MilvusError
from ssop_rag.pool import Priority, WorkPool

T = TypeVar("T")


class VectorStore(Protocol):
    """Documents by tenant. `now_ms` is the wall clock's; what has expired by then is not found.

    Errors are MeshError: COLLECTION_UNKNOWN, OVERLOADED, REQUEST_INVALID, STORE_UNAVAILABLE.
    """

    async def upsert(self, tenant: str, collection: str, documents: Sequence[Document], *, now_ms: int) -> Change:
        """Add or replace documents, all or none; durable when it returns."""
        ...

    async def delete(self, tenant: str, collection: str, document_ids: Sequence[str], *, now_ms: int) -> Change:
        """Delete the documents that are there."""
        ...

    async def drop(self, tenant: str, collection: str, *, now_ms: int) -> Change:
        """Delete a collection."""
        ...

    async def stats(self, tenant: str, *, now_ms: int) -> list[CollectionStats]:
        """The tenant's collections, by name."""
        ...

    async def search(self, tenant: str, names: Sequence[str], query: Query, k: int, *, now_ms: int) -> Answer:
        """The best `k` passages of the collections, each by its ranker; none named: all of the tenant's."""
        ...

    async def candidates(
        self, tenant: str, names: Sequence[str], prefix: Query, count: int, *, now_ms: int
    ) -> Candidates:
        """The best `count` passages without texts, for a prefetch, at the lowest priority."""
        ...

    async def search_within(
        self,
        tenant: str,
        candidates: Candidates,
        query: Query,
        k: int,
        *,
        is_lossy: bool = False,
        now_ms: int,
    ) -> Answer | None:
        """The answer of `search`, if it can be drawn from candidates that were fetched for a prefix; else None.

        None too when a collection has changed since. `is_lossy`: the best `k` of the candidates alone, where it can't
        be shown that they are the answer of `search`.
        """
        ...

    async def has_collections(self, tenant: str, names: Sequence[str], *, now_ms: int) -> bool:
        """Whether there is anything to search."""
        ...

    async def replace(self, tenant: str, collection: str, documents: Sequence[Document], *, now_ms: int) -> Change:
        """Make these the documents of a collection, all or none; durable when it returns."""
        ...

    async def held(
        self, tenant: str, collection: str, document_ids: Sequence[str], *, now_ms: int
    ) -> Mapping[str, StoredDocument]:
        """Those of the documents that are there with vectors of the current embedder, by id."""
        ...

    async def documents(
        self, tenant: str, collection: str, after: str, limit: int, *, now_ms: int
    ) -> tuple[list[StoredDocument], int]:
        """Up to `limit` documents after the one called `after` in an order that stays, and the version."""
        ...

    async def dump(
        self, tenant: str, names: Sequence[str], take: Callable[[str, Document], None], *, now_ms: int
    ) -> list[CollectionStats]:
        """Hand (collection, document) pairs over, as they are at one instant, collection by collection, on a thread."""
        ...


class PooledStore:
    """An index whose methods block, behind a pool of threads."""

    def __init__(self, index: EmbeddedIndex | MilvusIndex, pool: WorkPool) -> None:
        self._index = index
        self._pool = pool

    async def upsert(self, tenant: str, collection: str, documents: Sequence[Document], *, now_ms: int) -> Change:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.upsert(tenant, collection, documents, now_ms))

    async def delete(self, tenant: str, collection: str, document_ids: Sequence[str], *, now_ms: int) -> Change:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.delete(tenant, collection, document_ids, now_ms))

    async def drop(self, tenant: str, collection: str, *, now_ms: int) -> Change:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.drop(tenant, collection, now_ms))

    async def stats(self, tenant: str, *, now_ms: int) -> list[CollectionStats]:
        """See VectorStore."""
        return await self._run(Priority.QUERY, lambda: self._index.stats(tenant, now_ms))

    async def search(self, tenant: str, names: Sequence[str], query: Query, k: int, *, now_ms: int) -> Answer:
        """See VectorStore."""
        return await self._run(Priority.QUERY, lambda: self._index.search(tenant, names, query, k, now_ms))

    async def candidates(
        self, tenant: str, names: Sequence[str], prefix: Query, count: int, *, now_ms: int
    ) -> Candidates:
        """See VectorStore."""
        return await self._run(Priority.PREFETCH, lambda: self._index.candidates(tenant, names, prefix, count, now_ms))

    async def search_within(
        self,
        tenant: str,
        candidates: Candidates,
        query: Query,
        k: int,
        *,
        is_lossy: bool = False,
        now_ms: int,
    ) -> Answer | None:
        """See VectorStore."""
        return await self._run(
            Priority.QUERY,
            lambda: self._index.search_within(tenant, candidates, query, k, now_ms, is_lossy=is_lossy),
        )

    async def has_collections(self, tenant: str, names: Sequence[str], *, now_ms: int) -> bool:
        """See VectorStore."""
        return await self._run(Priority.PREFETCH, lambda: self._index.has_collections(tenant, names, now_ms))

    async def replace(self, tenant: str, collection: str, documents: Sequence[Document], *, now_ms: int) -> Change:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.replace(tenant, collection, documents, now_ms))

    async def held(
        self, tenant: str, collection: str, document_ids: Sequence[str], *, now_ms: int
    ) -> Mapping[str, StoredDocument]:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.held(tenant, collection, document_ids, now_ms))

    async def documents(
        self, tenant: str, collection: str, after: str, limit: int, *, now_ms: int
    ) -> tuple[list[StoredDocument], int]:
        """See VectorStore."""
        return await self._run(Priority.QUERY, lambda: self._index.documents(tenant, collection, after, limit, now_ms))

    async def dump(
        self, tenant: str, names: Sequence[str], take: Callable[[str, Document], None], *, now_ms: int
    ) -> list[CollectionStats]:
        """See VectorStore."""
        return await self._run(Priority.INDEX, lambda: self._index.dump(tenant, names, take, now_ms))

    async def _run(self, priority: Priority, function: Callable[[], T]) -> T:
        try:
            return await self._pool.run(priority, function)
        except UnknownCollectionError as error:
            raise MeshError(
                ErrorReason.ERROR_REASON_COLLECTION_UNKNOWN,
                f"no collection '{error.collection}'",
                metadata={"collection": error.collection},
            ) from error
        except DocumentTooLargeError as error:
            raise invalid_request(("documents", str(error))) from error
        except (IndexUnavailableError, MilvusError, RecordError) as error:
            raise MeshError(ErrorReason.ERROR_REASON_STORE_UNAVAILABLE, "the index can't be used") from error
