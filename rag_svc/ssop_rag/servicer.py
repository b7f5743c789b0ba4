"""RagService: translates messages, checks them, and asks the indexer, the store and the prefetcher.

The tenant is the principal's and no other.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from ssop.v1 import inference_pb2, mesh_pb2, rag_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError, invalid_request
from ssop_chassis.words import count_tokens
from ssop_rag.control import PrefetchControl
from ssop_rag.core import request as rules
from ssop_rag.core.model import Change, CollectionStats, StoredDocument
from ssop_rag.core.prefetch import Use
from ssop_rag.core.request import Faults
from ssop_rag.core.snapshot_file import Summary
from ssop_rag.core.stamp import Stamps
from ssop_rag.indexing import Cut, Indexer
from ssop_rag.observations import RagMetrics
from ssop_rag.prefetcher import Clocks, Prefetcher
from ssop_rag.reranking import Reranking
from ssop_rag.retrieving import Retriever, Search
from ssop_rag.snapshots import Snapshot, Snapshots
from ssop_rag.store import VectorStore

SCOPE = "rag"
_SKIPPED = ";rerank-skipped"
_MAX_PAGE_BYTES = 1024 * 1024


class RagServicer:
    """The service. `limits` puts those of the moment into force; `prefetch_ratio` stands for a request's ratio of 0."""

    def __init__(
        self,
        *,
        store: VectorStore,
        indexer: Indexer,
        retriever: Retriever,
        prefetcher: Prefetcher,
        metrics: RagMetrics,
        clocks: Clocks,
        stamps: Stamps,
        limits: PrefetchControl,
        prefetch_ratio: float,
        snapshots: Snapshots,
        reranking: Reranking,
        max_tenant_passages: int,
    ) -> None:
        self._store = store
        self._indexer = indexer
        self._retriever = retriever
        self._prefetcher = prefetcher
        self._metrics = metrics
        self._clocks = clocks
        self._stamps = stamps
        self._limits = limits
        self._prefetch_ratio = prefetch_ratio
        self._snapshots = snapshots
        self._reranking = reranking
        self._max_tenant_passages = max_tenant_passages

    async def upsert_documents(self, call: Call) -> None:
        """See UpsertDocuments."""
        tenant = _tenant(call)
        request = rag_pb2.UpsertDocumentsRequest.FromString(call.request)
        _require(rules.check_upsert(request))
        sorted_ = await self._indexer.sort(request.documents, self._clocks.wall_ms())
        ids = [cut.document.document_id for cut in sorted_.taken]
        held = await self._store.held(tenant, request.collection, ids, now_ms=self._clocks.wall_ms()) if ids else {}
        unchanged, changed = _partition(sorted_.taken, held)
        replaced = [held[cut.document.document_id] for cut in changed if cut.document.document_id in held]
        more = sum(len(cut.passages) for cut in changed) - sum(document.passages for document in replaced)
        await self._check_room(tenant, more)
        documents = await self._indexer.embed(changed)
        if documents:
            change = await self._store.upsert(tenant, request.collection, documents, now_ms=self._clocks.wall_ms())
        else:
            change = Change(0, 0, await self._version(tenant, request.collection))
        self._metrics.documents(
            tenant, indexed=change.documents, unchanged=len(unchanged), refused=len(sorted_.refused)
        )
        response = rag_pb2.UpsertDocumentsResponse(
            documents=change.documents,
            passages=change.passages,
            index_version=change.version,
            unchanged_document_ids=unchanged,
        )
        for document_id, reason in sorted_.refused:
            response.refused.add(document_id=document_id, reason=reason)
        await call.write(response.SerializeToString())

    async def delete_documents(self, call: Call) -> None:
        """See DeleteDocuments."""
        tenant = _tenant(call)
        request = rag_pb2.DeleteDocumentsRequest.FromString(call.request)
        _require(rules.check_delete(request))
        now_ms = self._clocks.wall_ms()
        if request.is_whole_collection:
            change = await self._store.drop(tenant, request.collection, now_ms=now_ms)
        else:
            change = await self._store.delete(tenant, request.collection, request.document_ids, now_ms=now_ms)
        response = rag_pb2.DeleteDocumentsResponse(documents=change.documents, index_version=change.version)
        await call.write(response.SerializeToString())

    async def list_collections(self, call: Call) -> None:
        """See ListCollections."""
        tenant = _tenant(call)
        rag_pb2.ListCollectionsRequest.FromString(call.request)
        stats = await self._store.stats(tenant, now_ms=self._clocks.wall_ms())
        response = rag_pb2.ListCollectionsResponse(collections=_infos(stats, self._stamps))
        await call.write(response.SerializeToString())

    async def list_documents(self, call: Call) -> None:
        """See ListDocuments."""
        tenant = _tenant(call)
        request = rag_pb2.ListDocumentsRequest.FromString(call.request)
        _require(rules.check_list(request))
        limit = request.limit or rules.MAX_DOCUMENTS
        documents, version = await self._store.documents(
            tenant, request.collection, request.after_document_id, limit + 1, now_ms=self._clocks.wall_ms()
        )
        response = rag_pb2.ListDocumentsResponse(index_version=version)
        for number, document in enumerate(documents):
            if number == limit or response.ByteSize() > _MAX_PAGE_BYTES:
                response.has_more = True
                break
            response.documents.add(
                document_id=document.document_id,
                title=document.title,
                passages=document.passages,
                attributes=document.attributes,
                expires_at_ms=document.expires_at_ms,
            )
        await call.write(response.SerializeToString())

    async def create_snapshot(self, call: Call) -> None:
        """See CreateSnapshot."""
        tenant = _tenant(call)
        request = rag_pb2.CreateSnapshotRequest.FromString(call.request)
        _require(rules.check_collection("snapshot", request.snapshot) + rules.check_search(request.collections, 0))
        made = await self._snapshots.create(
            tenant, request.snapshot, _names(request.collections), now_ms=self._clocks.wall_ms()
        )
        await call.write(rag_pb2.CreateSnapshotResponse(snapshot=_snapshot_info(made)).SerializeToString())

    async def list_snapshots(self, call: Call) -> None:
        """See ListSnapshots."""
        tenant = _tenant(call)
        rag_pb2.ListSnapshotsRequest.FromString(call.request)
        found = await self._snapshots.find(tenant)
        response = rag_pb2.ListSnapshotsResponse(snapshots=[_snapshot_info(one) for one in found])
        await call.write(response.SerializeToString())

    async def restore_snapshot(self, call: Call) -> None:
        """See RestoreSnapshot."""
        tenant = _tenant(call)
        request = rag_pb2.RestoreSnapshotRequest.FromString(call.request)
        _require(rules.check_collection("snapshot", request.snapshot))

        async def admit(summary: Summary) -> None:
            replaced = {stats.name for stats in summary.collections}
            await self._check_room(tenant, sum(stats.passages for stats in summary.collections), without=replaced)

        stats = await self._snapshots.restore(tenant, request.snapshot, admit, now_ms=self._clocks.wall_ms())
        await call.write(rag_pb2.RestoreSnapshotResponse(collections=_infos(stats, self._stamps)).SerializeToString())

    async def delete_snapshot(self, call: Call) -> None:
        """See DeleteSnapshot."""
        tenant = _tenant(call)
        request = rag_pb2.DeleteSnapshotRequest.FromString(call.request)
        _require(rules.check_collection("snapshot", request.snapshot))
        is_deleted = await self._snapshots.delete(tenant, request.snapshot)
        await call.write(rag_pb2.DeleteSnapshotResponse(is_deleted=is_deleted).SerializeToString())

    async def prefetch(self, call: Call) -> None:
        """See Prefetch. A prefix of no words starts nothing."""
        tenant = _tenant(call)
        request = rag_pb2.PrefetchRequest.FromString(call.request)
        faults = rules.check_request_id(request.request_id) + rules.check_search(request.collections, request.top_k)
        if not 0 <= request.rag_prefetch_ratio <= 1:
            faults.append(("rag_prefetch_ratio", "must be from 0 to 1"))
        _require(faults)
        text = rules.normalise_query(request.query_prefix, rules.MAX_PREFIX_CHARS)
        self._limits.refresh()
        ratio = request.rag_prefetch_ratio or self._prefetch_ratio
        count = rules.candidate_count(ratio, request.top_k or rules.DEFAULT_TOP_K)
        outcome = rag_pb2.PREFETCH_OUTCOME_NOTHING
        if text:
            names = _names(request.collections)
            outcome = await self._prefetcher.start(tenant, request.request_id, names, text, count)
        is_started = outcome in (rag_pb2.PREFETCH_OUTCOME_STARTED, rag_pb2.PREFETCH_OUTCOME_KEPT)
        tokens = count_tokens(text) if outcome == rag_pb2.PREFETCH_OUTCOME_STARTED else 0
        response = rag_pb2.PrefetchResponse(is_started=is_started, outcome=outcome, tokens=tokens)
        await call.write(response.SerializeToString())

    async def cancel_prefetch(self, call: Call) -> None:
        """See CancelPrefetch."""
        tenant = _tenant(call)
        request = rag_pb2.CancelPrefetchRequest.FromString(call.request)
        _require(rules.check_request_id(request.request_id))
        self._prefetcher.cancel(tenant, request.request_id)
        await call.write(rag_pb2.CancelPrefetchResponse().SerializeToString())

    async def retrieve(self, call: Call) -> None:
        """See Retrieve."""
        tenant = _tenant(call)
        request = rag_pb2.RetrieveRequest.FromString(call.request)
        query = rules.normalise_query(request.query)
        faults = rules.check_search(request.collections, request.top_k)
        _require(faults if query else [*faults, ("query", "is required")])
        if rules.is_cut(request.query):
            self._metrics.query_cut()
        names = _names(request.collections)
        top_k = request.top_k or rules.DEFAULT_TOP_K
        search = Search(tenant, request.request_id, names, query, self._reranking.depth(top_k))
        found = await self._retriever.retrieve(search)
        passages, is_skipped = await self._reranking.apply(query, found.answer.passages, top_k)
        response = rag_pb2.RetrieveResponse(
            # Without its reranker an answer is not the one that the stamps stand for, and must not be stored as such.
            index_version=self._stamps.join(found.answer.versions) + (_SKIPPED if is_skipped else ""),
            is_rerank_skipped=is_skipped,
            is_prefetch_hit=found.use is not None,
            is_lossy=found.use is Use.LOSSY,
            overlap_ms=found.overlap_ms,
        )
        for passage in passages:
            hit = passage.hit
            ref = mesh_pb2.PassageRef(
                collection=hit.collection, document_id=hit.document_id, passage=hit.passage, score=hit.score
            )
            response.passages.append(inference_pb2.Passage(ref=ref, text=passage.text))
        await call.write(response.SerializeToString())

    async def embed(self, call: Call) -> None:
        """See Embed."""
        request = rag_pb2.EmbedRequest.FromString(call.request)
        _require(rules.check_embedding(request.texts))
        rows = await self._retriever.embed(list(request.texts), is_urgent=request.is_urgent)
        response = rag_pb2.EmbedResponse(
            embedder=self._retriever.embedder.tag, vectors=[row.astype("<f4").tobytes() for row in rows]
        )
        await call.write(response.SerializeToString())

    async def get_prefetch_usage(self, call: Call) -> None:
        """See GetPrefetchUsage."""
        tenant = _tenant(call)
        rag_pb2.GetPrefetchUsageRequest.FromString(call.request)
        self._limits.refresh()
        await call.write(self._prefetcher.usage(tenant).SerializeToString())

    async def warm_queries(self, call: Call) -> None:
        """See WarmQueries."""
        tenant = _tenant(call)
        request = rag_pb2.WarmQueriesRequest.FromString(call.request)
        _require(rules.check_search(request.collections, 0) + rules.check_warming(request.queries))
        # Loads the tenant's collections into memory, and says which of the names are unknown.
        await self._store.has_collections(tenant, _names(request.collections), now_ms=self._clocks.wall_ms())
        response = rag_pb2.WarmQueriesResponse()
        for query in dict.fromkeys(map(rules.normalise_query, request.queries)):
            if await self._retriever.warm(tenant, query):
                response.embedded += 1
            else:
                response.known += 1
        await call.write(response.SerializeToString())

    async def _check_room(self, tenant: str, more: int, *, without: Collection[str] = ()) -> None:
        """Raise QUOTA_EXHAUSTED unless the tenant may keep so many passages more, some collections not counted."""
        if more <= 0:
            return
        found = await self._store.stats(tenant, now_ms=self._clocks.wall_ms())
        kept = sum(stats.passages for stats in found if stats.name not in without)
        if kept + more > self._max_tenant_passages:
            raise MeshError(
                ErrorReason.ERROR_REASON_QUOTA_EXHAUSTED,
                f"the tenant keeps {kept} passages, and {more} more are above its limit",
                quotas=[("passages", f"at most {self._max_tenant_passages}")],
            )

    async def _version(self, tenant: str, collection: str) -> int:
        stats = await self._store.stats(tenant, now_ms=self._clocks.wall_ms())
        return next((one.version for one in stats if one.name == collection), 0)


def _tenant(call: Call) -> str:
    call.principal.require(SCOPE)
    return call.principal.tenant


def _partition(taken: Sequence[Cut], held: Mapping[str, StoredDocument]) -> tuple[list[str], list[Cut]]:
    """Ids of the documents that are there with the same content, and the others."""
    unchanged: list[str] = []
    changed: list[Cut] = []
    for cut in taken:
        stored = held.get(cut.document.document_id)
        if stored is not None and stored.fingerprint == cut.fingerprint:
            unchanged.append(cut.document.document_id)
        else:
            changed.append(cut)
    return unchanged, changed


def _infos(found: Iterable[CollectionStats], stamps: Stamps | None = None) -> list[rag_pb2.CollectionInfo]:
    """Collections as they are told; stamps are given to those of the index, not to those of a snapshot."""
    return [
        rag_pb2.CollectionInfo(
            collection=stats.name,
            documents=stats.documents,
            passages=stats.passages,
            index_version=stats.version,
            embedder=stats.embedder,
            index_stamp=stamps.of(stats.name, stats.version) if stamps is not None else "",
            ranker=stamps.rankers.of(stats.name).value if stamps is not None else "",
        )
        for stats in found
    ]


def _snapshot_info(snapshot: Snapshot) -> rag_pb2.SnapshotInfo:
    name, size_bytes, summary = snapshot
    return rag_pb2.SnapshotInfo(
        snapshot=name,
        created_at_ms=summary.created_at_ms,
        size_bytes=size_bytes,
        collections=_infos(summary.collections),
    )


def _names(collections: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(collections)))


def _require(faults: Faults) -> None:
    if faults:
        raise invalid_request(*faults)
