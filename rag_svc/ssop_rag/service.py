"""Puts the service together; main and the integration tests share it."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from ssop.v1 import rag_pb2
from ssop_chassis.call import Service, bind
from ssop_chassis.settings import SettingsError
from ssop_rag.control import PrefetchControl
from ssop_rag.core.account import Accounts
from ssop_rag.core.budget import BudgetLimits
from ssop_rag.core.chunking import Limits
from ssop_rag.core.memo import QueryMemo
from ssop_rag.core.prefetch import Limits as PrefetchLimits
from ssop_rag.core.prefetch import PrefetchBook
from ssop_rag.core.pressure import Pressure
from ssop_rag.core.stamp import Stamps
from ssop_rag.core.worth import WorthLimits
from ssop_rag.embedded import EmbeddedIndex
from ssop_rag.embedder import Embedder
from ssop_rag.indexing import Indexer
from ssop_rag.milvus import MilvusIndex
from ssop_rag.milvus_link import MilvusLink
from ssop_rag.milvus_reader import MilvusReader
from ssop_rag.observations import RagMetrics
from ssop_rag.pool import WorkPool
from ssop_rag.prefetcher import Clocks, Prefetcher
from ssop_rag.reranking import HttpReranker, Reranking
from ssop_rag.retrieving import Retriever
from ssop_rag.servicer import RagServicer
from ssop_rag.settings import RagSettings
from ssop_rag.snapshots import Snapshots
from ssop_rag.store import PooledStore

_STORE_THREADS = 2
SYSTEM_CLOCKS = Clocks(lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000)


@dataclass(frozen=True, slots=True)
class RagService:
    """The service, the pools that embed queries and prefetches, and the prefetcher."""

    service: Service
    pool: WorkPool
    prefetch_pool: WorkPool
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
    index = _open_index(settings, embedder, metrics)
    stack.callback(index.close)
    store_threads = _STORE_THREADS if settings.store == "embedded" else settings.milvus_threads
    store_pool = WorkPool("rag-store", threads=store_threads, max_queue=settings.max_queue)
    stack.callback(store_pool.close)
    pool = WorkPool("rag-embed", threads=settings.threads, max_queue=settings.max_queue)
    stack.callback(pool.close)
    prefetch_pool = WorkPool("rag-prefetch", threads=settings.prefetch_threads, max_queue=settings.prefetch_queue)
    stack.callback(prefetch_pool.close)
    store = PooledStore(index, store_pool)
    book = PrefetchBook(PrefetchLimits(settings.rag_max_concurrent, ttl_ms=settings.prefetch_ttl_ms))
    accounts = Accounts(
        BudgetLimits(settings.prefetch_budget, settings.prefetch_window_ms),
        WorthLimits(waste_weight=settings.prefetch_waste_weight, off_ms=settings.prefetch_off_ms),
    )
    prefetcher = Prefetcher(
        book=book,
        accounts=accounts,
        store=store,
        embedder=embedder,
        pool=prefetch_pool,
        queries=pool,
        metrics=metrics,
        clocks=clocks,
        rankers=rankers,
        pressure=Pressure(settings.prefetch_max_stretch),
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
    retriever = Retriever(
        store=store,
        embedder=embedder,
        pool=pool,
        prefetcher=prefetcher,
        memo=QueryMemo(settings.query_memo),
        metrics=metrics,
        clocks=clocks,
        rankers=rankers,
        is_lossy=settings.rag_prefetch_mode == "lossy",
    )
    reranking = Reranking(_open_reranker(settings), settings.rerank_limits, metrics)
    stack.callback(reranking.close)
    servicer = RagServicer(
        store=store,
        indexer=indexer,
        retriever=retriever,
        prefetcher=prefetcher,
        metrics=metrics,
        clocks=clocks,
        stamps=Stamps(embedder.tag, rankers, reranking.tag),
        limits=PrefetchControl(settings, book, accounts, clocks.wall_ms),
        prefetch_ratio=settings.rag_prefetch_ratio,
        snapshots=snapshots,
        reranking=reranking,
        max_tenant_passages=settings.max_tenant_passages,
    )
    service = bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], servicer)
    return RagService(service, pool, prefetch_pool, prefetcher)


def _open_index(settings: RagSettings, embedder: Embedder, metrics: RagMetrics) -> EmbeddedIndex | MilvusIndex:
    if settings.store == "embedded":
        return EmbeddedIndex(
            settings.directory,
            embedder.tag,
            embedder.dim,
            metrics.skipped,
            settings.rankers,
            on_damage=metrics.damaged,
        )
    token = _read_secret(settings.milvus_token_file)
    link = MilvusLink(settings.milvus_uri, token, settings.milvus_timeout_ms / 1000, settings.milvus_index)
    reader = MilvusReader(link, settings.milvus_prefix, embedder.tag, settings.rankers, metrics.skipped)
    return MilvusIndex(reader, embedder.dim)


def _open_reranker(settings: RagSettings) -> HttpReranker | None:
    if not settings.rerank_url:
        return None
    return HttpReranker(settings.rerank_url, settings.rerank_model, _read_secret(settings.rerank_key_file))


def _read_secret(path: Path | None) -> str:
    try:
        return path.read_text().strip() if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"[rag] {path} can't be read: {type(error).__name__}") from error
