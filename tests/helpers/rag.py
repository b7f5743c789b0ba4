"""A RAG service for tests: a hashing embedder that needs no model, clocks that are set by hand, and a typed caller."""

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry

from ssop.v1 import rag_pb2
from ssop_chassis.call import Metadata, Peer, Service
from ssop_chassis.identity import Principal
from ssop_chassis.memory import MemoryPeer
from ssop_rag.core.model import Matrix
from ssop_rag.core.ranking import unit_rows
from ssop_rag.embedder import Embedder
from ssop_rag.pool import WorkPool
from ssop_rag.prefetcher import Clocks, Prefetcher
from ssop_rag.service import open_service
from ssop_rag.settings import RagSettings

_TOKEN: Final = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


@dataclass
class HashingEmbedder:
    """A bag of words: each token adds a vector that its hash makes. Deterministic; for tests only.

    While `gate` is cleared, embedding blocks. `queries` and `passages` are the texts that were embedded.
    """

    dim: int = 32
    tag: str = "hashing/1"
    gate: Event = field(default_factory=Event)
    queries: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    def embed_query(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        self.queries += texts
        return self._embed(texts)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        self.passages += texts
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> Matrix:
        if not self.gate.wait(10):
            raise TimeoutError("the gate stayed shut")
        return unit_rows(np.stack([self._vector(text) for text in texts]))

    def _vector(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        total = np.full(self.dim, 1e-3)
        for token in _TOKEN.findall(text.lower()):
            seed = int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "big")
            total += np.random.default_rng(seed).standard_normal(self.dim)
        return total


@dataclass
class HandClocks:
    """Clocks that tests set."""

    wall_ms: int = 1_000_000
    monotonic_ms: int = 0

    def clocks(self) -> Clocks:
        """The clocks as the service takes them."""
        return Clocks(lambda: self.wall_ms, lambda: self.monotonic_ms)


def document(document_id: str, text: str, *, title: str = "", expires_at_ms: int = 0) -> rag_pb2.IndexDocument:
    """A document to index."""
    return rag_pb2.IndexDocument(document_id=document_id, text=text, title=title, expires_at_ms=expires_at_ms)


class Caller:
    """One tenant's calls of a RAG service."""

    def __init__(self, peer: Peer, metadata: Callable[[], Metadata] | None = None) -> None:
        self._peer = peer
        self._metadata = metadata

    async def _call(self, method: str, request: bytes) -> bytes:
        metadata = self._metadata() if self._metadata is not None else None
        return await self._peer.unary(f"/ssop.v1.RagService/{method}", request, timeout_s=30, metadata=metadata)

    async def embed(self, texts: Sequence[str], *, is_urgent: bool = True) -> rag_pb2.EmbedResponse:
        """Embed."""
        request = rag_pb2.EmbedRequest(texts=texts, is_urgent=is_urgent)
        return rag_pb2.EmbedResponse.FromString(await self._call("Embed", request.SerializeToString()))

    async def upsert(self, collection: str, *documents: rag_pb2.IndexDocument) -> rag_pb2.UpsertDocumentsResponse:
        """UpsertDocuments."""
        request = rag_pb2.UpsertDocumentsRequest(collection=collection, documents=documents)
        return rag_pb2.UpsertDocumentsResponse.FromString(
            await self._call("UpsertDocuments", request.SerializeToString())
        )

    async def delete(self, collection: str, *ids: str, whole: bool = False) -> rag_pb2.DeleteDocumentsResponse:
        """DeleteDocuments."""
        request = rag_pb2.DeleteDocumentsRequest(collection=collection, document_ids=ids, is_whole_collection=whole)
        return rag_pb2.DeleteDocumentsResponse.FromString(
            await self._call("DeleteDocuments", request.SerializeToString())
        )

    async def collections(self) -> list[rag_pb2.CollectionInfo]:
        """ListCollections."""
        response = await self._call("ListCollections", b"")
        return list(rag_pb2.ListCollectionsResponse.FromString(response).collections)

    async def documents(self, collection: str, *, after: str = "", limit: int = 0) -> rag_pb2.ListDocumentsResponse:
        """ListDocuments."""
        request = rag_pb2.ListDocumentsRequest(collection=collection, after_document_id=after, limit=limit)
        return rag_pb2.ListDocumentsResponse.FromString(await self._call("ListDocuments", request.SerializeToString()))

    async def snapshot(self, name: str, *collections: str) -> rag_pb2.SnapshotInfo:
        """CreateSnapshot."""
        request = rag_pb2.CreateSnapshotRequest(snapshot=name, collections=collections)
        response = await self._call("CreateSnapshot", request.SerializeToString())
        return rag_pb2.CreateSnapshotResponse.FromString(response).snapshot

    async def snapshots(self) -> list[rag_pb2.SnapshotInfo]:
        """ListSnapshots."""
        response = await self._call("ListSnapshots", b"")
        return list(rag_pb2.ListSnapshotsResponse.FromString(response).snapshots)

    async def restore(self, name: str) -> list[rag_pb2.CollectionInfo]:
        """RestoreSnapshot."""
        response = await self._call(
            "RestoreSnapshot", rag_pb2.RestoreSnapshotRequest(snapshot=name).SerializeToString()
        )
        return list(rag_pb2.RestoreSnapshotResponse.FromString(response).collections)

    async def delete_snapshot(self, name: str) -> bool:
        """DeleteSnapshot."""
        response = await self._call("DeleteSnapshot", rag_pb2.DeleteSnapshotRequest(snapshot=name).SerializeToString())
        return rag_pb2.DeleteSnapshotResponse.FromString(response).is_deleted

    async def prefetch(
        self, request_id: str, prefix: str, *collections: str, top_k: int = 0, ratio: float = 0.0
    ) -> bool:
        """Prefetch; whether it was started."""
        response = await self._prefetch(request_id, prefix, collections, top_k, ratio)
        return response.is_started

    async def prefetch_outcome(self, request_id: str, prefix: str) -> int:
        """Prefetch; what became of it."""
        return (await self._prefetch(request_id, prefix, (), 0, 0.0)).outcome

    async def _prefetch(
        self, request_id: str, prefix: str, collections: Sequence[str], top_k: int, ratio: float
    ) -> rag_pb2.PrefetchResponse:
        request = rag_pb2.PrefetchRequest(
            request_id=request_id,
            query_prefix=prefix,
            collections=collections,
            top_k=top_k,
            rag_prefetch_ratio=ratio,
        )
        return rag_pb2.PrefetchResponse.FromString(await self._call("Prefetch", request.SerializeToString()))

    async def usage(self) -> rag_pb2.GetPrefetchUsageResponse:
        """GetPrefetchUsage."""
        return rag_pb2.GetPrefetchUsageResponse.FromString(await self._call("GetPrefetchUsage", b""))

    async def warm(self, *queries: str) -> rag_pb2.WarmQueriesResponse:
        """WarmQueries."""
        request = rag_pb2.WarmQueriesRequest(queries=queries)
        return rag_pb2.WarmQueriesResponse.FromString(await self._call("WarmQueries", request.SerializeToString()))

    async def cancel(self, request_id: str) -> None:
        """CancelPrefetch."""
        await self._call("CancelPrefetch", rag_pb2.CancelPrefetchRequest(request_id=request_id).SerializeToString())

    async def retrieve(
        self, query: str, *collections: str, request_id: str = "", top_k: int = 0
    ) -> rag_pb2.RetrieveResponse:
        """Retrieve."""
        request = rag_pb2.RetrieveRequest(request_id=request_id, collections=collections, query=query, top_k=top_k)
        return rag_pb2.RetrieveResponse.FromString(await self._call("Retrieve", request.SerializeToString()))


class RagUnderTest:
    """A service in this process on a folder. Use it in `async with`."""

    def __init__(
        self, directory: Path, *, embedder: Embedder | None = None, threads: int = 2, **settings: object
    ) -> None:
        self.embedder = HashingEmbedder()
        self._used: Embedder = embedder or self.embedder
        self.clocks = HandClocks()
        self.registry = CollectorRegistry()
        self.settings = RagSettings.model_validate({"directory": directory, "threads": threads, **settings})
        self._stack = AsyncExitStack()
        self.service: Service
        self.pool: WorkPool
        self.prefetch_pool: WorkPool
        self.prefetcher: Prefetcher

    async def __aenter__(self) -> "RagUnderTest":
        rag = open_service(self.settings, self._used, self.registry, self._stack, self.clocks.clocks())
        self.service, self.pool, self.prefetcher = rag.service, rag.pool, rag.prefetcher
        self.prefetch_pool = rag.prefetch_pool
        return self

    async def __aexit__(self, *_: object) -> None:
        self.embedder.gate.set()
        await self._stack.aclose()

    def caller(self, tenant: str = "acme", scopes: frozenset[str] = frozenset({"rag"})) -> Caller:
        """A caller of the tenant."""
        return Caller(MemoryPeer([self.service], lambda _: Principal(tenant, "key", scopes)))

    def prefetches(self, outcome: str, tenant: str = "acme") -> float:
        """How many prefetches of a tenant were `hit`, `wasted` or `shed`."""
        return sum(
            sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "ssop_rag_prefetches_total"
            and sample.labels["outcome"] == outcome
            and sample.labels["tenant"] == tenant
        )


def refs(response: rag_pb2.RetrieveResponse) -> list[tuple[str, str, int]]:
    """(collection, document, passage) of an answer, best first."""
    return [(p.ref.collection, p.ref.document_id, p.ref.passage) for p in response.passages]
