"""Puts the service together; main and the integration tests share it."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ssop.v1 import rag_pb2
from ssop_chassis.call import Service, bind
from ssop_rag.core.chunking import Limits
from ssop_rag.core.prefetch import Limits as PrefetchLimits
from ssop_rag.core.prefetch import PrefetchBook
from ssop_rag.core.stamp import Stamps
from ssop_rag.embedded import EmbeddedIndex
from ssop_rag.embedder import Embedder
from ssop_rag.indexing import Indexer
from ssop_rag.observations import RagMetrics
from ssop_rag.pool import WorkPool
from ssop_rag.prefetcher import Clocks, Prefetcher
from ssop_rag.servicer import RagServicer
from ssop_rag.settings import RagSettings
from ssop_rag.snapshots import Snapshots
from ssop_rag.store import EmbeddedStore

_STORE_THREADS = 2
SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000)


@dataclass(frozen=True, slots=True)
class RagService:
    """The service, the pool that embeds, and the prefetcher."""

    service: Service
    pool: WorkPool
    prefetcher: Prefetcher


def open_service(
    settings: RagSettings,
    embedder: Embedder,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
    clocks: Clocks = SYSTEM_CLOCKS,
) -> RagService:
    """The service; `stack` closes its threads and the index. Raises IndexUnavailableError."""
    metrics = RagMetrics(registry)
    rankers = settings.rankers
    index = EmbeddedIndex(settings.directory, embedder.tag, embedder.dim, metrics.skipped, rankers)
    stack.callback(index.close)
    store_pool = WorkPool("rag-store", threads=_STORE_THREADS, max_queue=settings.max_queue)
    stack.callback(store_pool.close)
    spare = 1 if settings.threads > 1 else 0
    pool = WorkPool("rag-embed", threads=settings.threads, max_queue=settings.max_queue, spare=spare)
    stack.callback(pool.close)
    store = EmbeddedStore(index, store_pool)
    book = PrefetchBook(PrefetchLimits(settings.rag_max_concurrent, ttl_ms=settings.prefetch_ttl_ms))
    prefetcher = Prefetcher(
        book=book, store=store, embedder=embedder, pool=pool, metrics=metrics, clocks=clocks, rankers=rankers
    )
    stack.push_async_callback(prefetcher.close)
    limits = Limits(settings.passage_chars, settings.overlap_chars)
    indexer = Indexer(embedder, pool, settings.threads, limits, settings.max_document_bytes)
    snapshot_pool = WorkPool("rag-snapshot", threads=1, max_queue=settings.max_queue)
    stack.callback(snapshot_pool.close)
    folder = settings.snapshots_directory
    if folder is None:
        folder = settings.directory.with_name(settings.directory.name + "-snapshots")
    snapshots = Snapshots(
        folder, store, snapshot_pool, embedder=embedder.tag, dim=embedder.dim, max_per_tenant=settings.max_snapshots
    )
    servicer = RagServicer(
        store=store,
        embedder=embedder,
        pool=pool,
        indexer=indexer,
        prefetcher=prefetcher,
        metrics=metrics,
        clocks=clocks,
        stamps=Stamps(embedder.tag, rankers),
        prefetch_ratio=settings.rag_prefetch_ratio,
        snapshots=snapshots,
        max_tenant_passages=settings.max_tenant_passages,
    )
    return RagService(bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], servicer), pool, prefetcher)
