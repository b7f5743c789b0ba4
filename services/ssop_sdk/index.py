"""`client.index`: documents of the key's tenant. Both clients have the same methods; needs the scope `rag`."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from ssop.v1 import rag_pb2 as pb
from ssop_sdk import connection, documents
from ssop_sdk.documents import DocumentsLike, Found, IndexReport, ReportMaker

P = TypeVar("P", bound=Message)
_PAGE: Final = 1_000


class Call(Protocol):
    """A unary call of the sync client."""

    def __call__(self, method: str, request: Message, kind: type[P], timeout_s: float | None) -> P: ...


class AsyncCall(Protocol):
    """A unary call of the async client."""

    async def __call__(self, method: str, request: Message, kind: type[P], timeout_s: float | None) -> P: ...


class Index:
    """Documents and what is found in them.

    ```python
    report = client.index.upsert("handbook", {"returns.md": "Goods may be returned within 30 days."})
    for found in client.index.search("How long can I return goods?"):
        print(found.document_id, found.text)
    ```
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def upsert(self, collection: str, items: DocumentsLike, *, timeout_s: float | None = None) -> IndexReport:
        """Add or replace documents; durable when it returns. Those that are there unchanged cost nothing.

        Many documents go in several calls, of `timeout_s` (300) seconds each; where one fails, what was sent before is
        indexed, and doing it again does the rest. Bad documents are refused one by one, in the report.
        """
        report = ReportMaker()
        for request in documents.upsert_requests(collection, items):
            timeout = timeout_s or documents.UPSERT_TIMEOUT_S
            report.add(request, self._call(connection.UPSERT, request, pb.UpsertDocumentsResponse, timeout))
        return report.report()

    def delete(self, collection: str, document_ids: Iterable[str], *, timeout_s: float | None = None) -> int:
        """Delete documents; how many were there."""
        request = documents.delete_request(collection, document_ids)
        return self._call(connection.DELETE, request, pb.DeleteDocumentsResponse, timeout_s).documents

    def delete_collection(self, collection: str, *, timeout_s: float | None = None) -> int:
        """Delete a collection; how many documents it had."""
        request = pb.DeleteDocumentsRequest(collection=collection, is_whole_collection=True)
        return self._call(connection.DELETE, request, pb.DeleteDocumentsResponse, timeout_s).documents

    def collections(self, *, timeout_s: float | None = None) -> Sequence[pb.CollectionInfo]:
        """The tenant's collections, by name."""
        request = pb.ListCollectionsRequest()
        return self._call(connection.COLLECTIONS, request, pb.ListCollectionsResponse, timeout_s).collections

    def documents(self, collection: str, *, timeout_s: float | None = None) -> Iterator[pb.DocumentInfo]:
        """The documents of a collection, asked for as they are taken. Raises CollectionUnknown."""
        request = pb.ListDocumentsRequest(collection=collection, limit=_PAGE)
        while True:
            page = self._call(connection.DOCUMENTS, request, pb.ListDocumentsResponse, timeout_s)
            yield from page.documents
            if not page.has_more or not page.documents:
                return
            request.after_document_id = page.documents[-1].document_id

    def search(
        self, query: str, collections: Iterable[str] = (), *, top_k: int = 0, timeout_s: float | None = None
    ) -> list[Found]:
        """The passages for a query, best first: `top_k` (4, at most 32) of the named collections, or of all."""
        request = documents.search_request(query, collections, top_k)
        return documents.read_found(self._call(connection.RETRIEVE, request, pb.RetrieveResponse, timeout_s))

    def warm(
        self, queries: Iterable[str], collections: Iterable[str] = (), *, timeout_s: float | None = None
    ) -> pb.WarmQueriesResponse:
        """Prepare for queries that are expected, at most 64: collections are loaded, and the queries embedded."""
        request = pb.WarmQueriesRequest(queries=list(queries), collections=list(collections))
        return self._call(connection.WARM_QUERIES, request, pb.WarmQueriesResponse, timeout_s)

    def prefetch_usage(self, *, timeout_s: float | None = None) -> pb.GetPrefetchUsageResponse:
        """What the tenant's prefetches cost and saved, and what is left of their budget."""
        request = pb.GetPrefetchUsageRequest()
        return self._call(connection.PREFETCH_USAGE, request, pb.GetPrefetchUsageResponse, timeout_s)

    def save_snapshot(
        self, name: str, collections: Iterable[str] = (), *, timeout_s: float | None = None
    ) -> pb.SnapshotInfo:
        """Keep collections (none named: all) as they are now, under a name, on the mesh's disk."""
        request = pb.CreateSnapshotRequest(snapshot=name, collections=list(collections))
        return self._call(connection.CREATE_SNAPSHOT, request, pb.CreateSnapshotResponse, timeout_s).snapshot

    def snapshots(self, *, timeout_s: float | None = None) -> Sequence[pb.SnapshotInfo]:
        """The tenant's snapshots, by name."""
        request = pb.ListSnapshotsRequest()
        return self._call(connection.LIST_SNAPSHOTS, request, pb.ListSnapshotsResponse, timeout_s).snapshots

    def restore_snapshot(self, name: str, *, timeout_s: float | None = None) -> Sequence[pb.CollectionInfo]:
        """Put the collections of a snapshot back; other collections stay. Raises CollectionUnknown."""
        request = pb.RestoreSnapshotRequest(snapshot=name)
        return self._call(connection.RESTORE_SNAPSHOT, request, pb.RestoreSnapshotResponse, timeout_s).collections

    def delete_snapshot(self, name: str, *, timeout_s: float | None = None) -> bool:
        """Delete a snapshot; whether there was one."""
        request = pb.DeleteSnapshotRequest(snapshot=name)
        return self._call(connection.DELETE_SNAPSHOT, request, pb.DeleteSnapshotResponse, timeout_s).is_deleted


class AsyncIndex:
    """See `Index`."""

    def __init__(self, call: AsyncCall) -> None:
        self._call = call

    async def upsert(self, collection: str, items: DocumentsLike, *, timeout_s: float | None = None) -> IndexReport:
        """See `Index.upsert`."""
        report = ReportMaker()
        for request in documents.upsert_requests(collection, items):
            timeout = timeout_s or documents.UPSERT_TIMEOUT_S
            report.add(request, await self._call(connection.UPSERT, request, pb.UpsertDocumentsResponse, timeout))
        return report.report()

    async def delete(self, collection: str, document_ids: Iterable[str], *, timeout_s: float | None = None) -> int:
        """See `Index.delete`."""
        request = documents.delete_request(collection, document_ids)
        return (await self._call(connection.DELETE, request, pb.DeleteDocumentsResponse, timeout_s)).documents

    async def delete_collection(self, collection: str, *, timeout_s: float | None = None) -> int:
        """See `Index.delete_collection`."""
        request = pb.DeleteDocumentsRequest(collection=collection, is_whole_collection=True)
        return (await self._call(connection.DELETE, request, pb.DeleteDocumentsResponse, timeout_s)).documents

    async def collections(self, *, timeout_s: float | None = None) -> Sequence[pb.CollectionInfo]:
        """See `Index.collections`."""
        request = pb.ListCollectionsRequest()
        return (await self._call(connection.COLLECTIONS, request, pb.ListCollectionsResponse, timeout_s)).collections

    async def documents(self, collection: str, *, timeout_s: float | None = None) -> AsyncIterator[pb.DocumentInfo]:
        """See `Index.documents`."""
        request = pb.ListDocumentsRequest(collection=collection, limit=_PAGE)
        while True:
            page = await self._call(connection.DOCUMENTS, request, pb.ListDocumentsResponse, timeout_s)
            for document in page.documents:
                yield document
            if not page.has_more or not page.documents:
                return
            request.after_document_id = page.documents[-1].document_id

    async def search(
        self, query: str, collections: Iterable[str] = (), *, top_k: int = 0, timeout_s: float | None = None
    ) -> list[Found]:
        """See `Index.search`."""
        request = documents.search_request(query, collections, top_k)
        return documents.read_found(await self._call(connection.RETRIEVE, request, pb.RetrieveResponse, timeout_s))

    async def warm(
        self, queries: Iterable[str], collections: Iterable[str] = (), *, timeout_s: float | None = None
    ) -> pb.WarmQueriesResponse:
        """See `Index.warm`."""
        request = pb.WarmQueriesRequest(queries=list(queries), collections=list(collections))
        return await self._call(connection.WARM_QUERIES, request, pb.WarmQueriesResponse, timeout_s)

    async def prefetch_usage(self, *, timeout_s: float | None = None) -> pb.GetPrefetchUsageResponse:
        """See `Index.prefetch_usage`."""
        request = pb.GetPrefetchUsageRequest()
        return await self._call(connection.PREFETCH_USAGE, request, pb.GetPrefetchUsageResponse, timeout_s)

    async def save_snapshot(
        self, name: str, collections: Iterable[str] = (), *, timeout_s: float | None = None
    ) -> pb.SnapshotInfo:
        """See `Index.save_snapshot`."""
        request = pb.CreateSnapshotRequest(snapshot=name, collections=list(collections))
        return (await self._call(connection.CREATE_SNAPSHOT, request, pb.CreateSnapshotResponse, timeout_s)).snapshot

    async def snapshots(self, *, timeout_s: float | None = None) -> Sequence[pb.SnapshotInfo]:
        """See `Index.snapshots`."""
        request = pb.ListSnapshotsRequest()
        return (await self._call(connection.LIST_SNAPSHOTS, request, pb.ListSnapshotsResponse, timeout_s)).snapshots

    async def restore_snapshot(self, name: str, *, timeout_s: float | None = None) -> Sequence[pb.CollectionInfo]:
        """See `Index.restore_snapshot`."""
        request = pb.RestoreSnapshotRequest(snapshot=name)
        response = await self._call(connection.RESTORE_SNAPSHOT, request, pb.RestoreSnapshotResponse, timeout_s)
        return response.collections

    async def delete_snapshot(self, name: str, *, timeout_s: float | None = None) -> bool:
        """See `Index.delete_snapshot`."""
        request = pb.DeleteSnapshotRequest(snapshot=name)
        return (await self._call(connection.DELETE_SNAPSHOT, request, pb.DeleteSnapshotResponse, timeout_s)).is_deleted
