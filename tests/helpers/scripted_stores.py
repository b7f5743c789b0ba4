"""A cache and a retrieval service that do what a test says."""

import asyncio
from dataclasses import dataclass, field

from ssop.v1 import cache_pb2, keys_pb2, mesh_pb2, rag_pb2, usage_pb2
from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CACHE_LEVEL_LOCAL, CACHE_LEVEL_SHARED
from ssop_chassis.call import Call, Service, bind
from ssop_chassis.errors import MeshError

R = ErrorReason


@dataclass
class _Generation:
    chunks: list[bytes] = field(default_factory=list)
    fence: int = 0
    state: str = "open"
    followers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedCache:
    """A CacheService that really stores, in memory, until a test makes it fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, bytes], tuple[bytes, str]] = {}
        self.generations: dict[tuple[str, bytes], _Generation] = {}
        self.admitted: list[cache_pb2.AdmitRequest] = []
        self.settled: dict[str, mesh_pb2.Usage] = {}
        self.counted: dict[str, usage_pb2.RequestCounts] = {}
        self.usage: list[usage_pb2.DayUsage] = []
        self.commits: list[cache_pb2.CommitRequest] = []
        self.renewals: list[cache_pb2.RenewRequest] = []
        self.limits = cache_pb2.TenantLimits()
        self.stats = CacheStats(has_local=True, local_answers=3)
        self.similar: dict[str, cache_pb2.FindSimilarResponse] = {}
        self.similar_puts: list[cache_pb2.PutSimilarRequest] = []
        self.similar_finds: list[cache_pb2.FindSimilarRequest] = []
        self.is_similar_frozen = False
        self.appends = 0
        self.calls = 0
        self.lookups = 0
        self.error: MeshError | None = None
        self.admission_error: MeshError | None = None
        self.append_error: MeshError | None = None
        self.renewal_error: MeshError | None = None
        self.is_frozen = False
        self.is_admission_frozen = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def _meet(self) -> None:
        self.calls += 1
        await self.gate.wait()
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def admit(self, call: Call) -> None:
        await self._meet()
        if self.is_admission_frozen:
            await asyncio.Event().wait()
        if self.admission_error is not None:
            raise self.admission_error
        request = cache_pb2.AdmitRequest.FromString(call.request)
        self.admitted.append(request)
        response = cache_pb2.AdmitResponse(limits=self.limits)
        name = (call.principal.tenant, request.cache_key)
        if request.cache_key:
            generation = self.generations.get(name)
            if name in self.stored:
                chunk, model = self.stored[name]
                response.outcome = CacheOutcome.CACHE_OUTCOME_HIT
                response.answer.MergeFrom(
                    cache_pb2.StoredAnswer(chunk=chunk, age_ms=1234, model=model, level=CACHE_LEVEL_SHARED)
                )
            elif request.no_lease:
                response.outcome = CacheOutcome.CACHE_OUTCOME_MISS
            elif generation is not None and generation.state == "open":
                response.outcome = CacheOutcome.CACHE_OUTCOME_FOLLOW
            else:
                fence = len(self.admitted)
                self.generations[name] = _Generation(fence=fence)
                response.outcome = CacheOutcome.CACHE_OUTCOME_LEASE
                response.fencing_token = fence
        await call.write(response.SerializeToString())

    async def run_batch(self, call: Call) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "an older service")

    async def renew(self, call: Call) -> None:
        await self._meet()
        if self.renewal_error is not None:
            raise self.renewal_error
        request = cache_pb2.RenewRequest.FromString(call.request)
        self.renewals.append(request)
        response = cache_pb2.RenewResponse()
        for lease in request.leases:
            one = self.generations.get((call.principal.tenant, lease.cache_key))
            is_held = one is not None and one.state == "open" and one.fence == lease.fencing_token
            response.leases.add(is_lost=not is_held, has_followers=one is not None and is_held and one.followers > 0)
        await call.write(response.SerializeToString())

    async def settle(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.SettleRequest.FromString(call.request)
        self.settled.setdefault(request.request_id, request.usage)
        self.counted.setdefault(request.request_id, request.counts)
        await call.write(cache_pb2.SettleResponse().SerializeToString())

    async def read_usage(self, call: Call) -> None:
        await self._meet()
        await call.write(cache_pb2.ReadUsageResponse(days=self.usage).SerializeToString())

    async def lookup(self, call: Call) -> None:
        self.lookups += 1
        await self._meet()
        request = cache_pb2.LookupRequest.FromString(call.request)
        kept = self.stored.get((call.principal.tenant, request.cache_key))
        response = cache_pb2.LookupResponse(outcome=CacheOutcome.CACHE_OUTCOME_MISS)
        if kept is not None:
            answer = cache_pb2.StoredAnswer(chunk=kept[0], age_ms=1234, model=kept[1], level=CACHE_LEVEL_LOCAL)
            response = cache_pb2.LookupResponse(outcome=CacheOutcome.CACHE_OUTCOME_HIT, answer=answer)
        await call.write(response.SerializeToString())

    async def flush(self, call: Call) -> None:
        await self._meet()
        self.stored = {name: kept for name, kept in self.stored.items() if name[0] != call.principal.tenant}
        await call.write(cache_pb2.FlushResponse().SerializeToString())

    async def read_stats(self, call: Call) -> None:
        await self._meet()
        await call.write(cache_pb2.ReadStatsResponse(stats=self.stats).SerializeToString())

    async def put_similar(self, call: Call) -> None:
        await self._meet()
        self.similar_puts.append(cache_pb2.PutSimilarRequest.FromString(call.request))
        await call.write(cache_pb2.PutSimilarResponse(is_kept=True).SerializeToString())

    async def find_similar(self, call: Call) -> None:
        self.similar_finds.append(cache_pb2.FindSimilarRequest.FromString(call.request))
        await self._meet()
        if self.is_similar_frozen:
            await asyncio.Event().wait()
        found = self.similar.get(call.principal.tenant)
        await call.write((found or cache_pb2.FindSimilarResponse()).SerializeToString())

    async def follow(self, call: Call) -> None:
        request = cache_pb2.FollowRequest.FromString(call.request)
        generation = self.generations.get((call.principal.tenant, request.cache_key))
        if generation is None:
            raise MeshError(R.ERROR_REASON_REQUEST_UNKNOWN, "scripted")
        generation.followers += 1
        sent = 0
        while True:
            while sent < len(generation.chunks):
                sent += 1
                await call.write(cache_pb2.FollowResponse(chunk=generation.chunks[sent - 1]).SerializeToString())
            if generation.state == "lost":
                raise MeshError(R.ERROR_REASON_LEASE_LOST, "scripted")
            if generation.state == "done":
                return
            generation.changed.clear()
            await generation.changed.wait()

    async def append(self, call: Call) -> None:
        await self._meet()
        self.appends += 1
        if self.append_error is not None:
            raise self.append_error
        request = cache_pb2.AppendRequest.FromString(call.request)
        generation = self._leased(call, request.cache_key, request.fencing_token)
        generation.chunks.append(request.chunk)
        generation.changed.set()
        response = cache_pb2.AppendResponse(has_followers=generation.followers > 0)
        await call.write(response.SerializeToString())

    async def commit(self, call: Call) -> None:
        await self._meet()
        request = cache_pb2.CommitRequest.FromString(call.request)
        self.commits.append(request)
        generation = self._leased(call, request.cache_key, request.fencing_token)
        generation.chunks.append(request.chunk)
        generation.state = "done" if request.is_complete else "lost"
        generation.changed.set()
        if request.is_complete:
            self.stored[(call.principal.tenant, request.cache_key)] = (b"".join(generation.chunks), request.model)
        await call.write(cache_pb2.CommitResponse().SerializeToString())

    def _leased(self, call: Call, key: bytes, fence: int) -> _Generation:
        generation = self.generations.get((call.principal.tenant, key))
        if generation is None or generation.fence != fence or generation.state != "open":
            raise MeshError(R.ERROR_REASON_LEASE_LOST, "scripted")
        return generation

    def service(self) -> Service:
        return bind(cache_pb2.DESCRIPTOR.services_by_name["CacheService"], self)


class ScriptedKeyStore:
    """A KeyStoreService that holds no keys."""

    async def read_keys(self, call: Call) -> None:
        await call.write(keys_pb2.ReadKeysResponse().SerializeToString())

    async def write_key(self, call: Call) -> None:
        await call.write(keys_pb2.WriteKeyResponse().SerializeToString())

    def service(self) -> Service:
        return bind(keys_pb2.DESCRIPTOR.services_by_name["KeyStoreService"], self)


class ScriptedRag:
    """A RagService with one passage, in the collections that a test names."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[str, int]] = {}
        self.prefetches: list[rag_pb2.PrefetchRequest] = []
        self.prefetch_tokens = 3
        self.cancelled_prefetches: list[str] = []
        self.retrievals: list[rag_pb2.RetrieveRequest] = []
        self.embedded: list[rag_pb2.EmbedRequest] = []
        self.is_lossy = False
        self.overlap_ms = 0
        self.calls: list[Call] = []
        self.error: MeshError | None = None
        self.retrieval_error: MeshError | None = None
        self.is_frozen = False
        self.is_admission_frozen = False

    async def _meet(self) -> None:
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def list_collections(self, call: Call) -> None:
        await self._meet()
        response = rag_pb2.ListCollectionsResponse()
        for name, version in self.collections.get(call.principal.tenant, {}).items():
            response.collections.add(collection=name, passages=1, index_version=version, index_stamp=str(version))
        await call.write(response.SerializeToString())

    async def prefetch(self, call: Call) -> None:
        await self._meet()
        self.prefetches.append(rag_pb2.PrefetchRequest.FromString(call.request))
        response = rag_pb2.PrefetchResponse(
            is_started=True, outcome=rag_pb2.PREFETCH_OUTCOME_STARTED, tokens=self.prefetch_tokens
        )
        await call.write(response.SerializeToString())

    async def cancel_prefetch(self, call: Call) -> None:
        await self._meet()
        self.cancelled_prefetches.append(rag_pb2.CancelPrefetchRequest.FromString(call.request).request_id)
        await call.write(rag_pb2.CancelPrefetchResponse().SerializeToString())

    async def retrieve(self, call: Call) -> None:
        await self._meet()
        if self.retrieval_error is not None:
            raise self.retrieval_error
        request = rag_pb2.RetrieveRequest.FromString(call.request)
        self.retrievals.append(request)
        mine = self.collections.get(call.principal.tenant, {})
        for name in request.collections:
            if name not in mine:
                raise MeshError(R.ERROR_REASON_COLLECTION_UNKNOWN, "scripted")
        versions = [f"{name}:{mine[name]}" for name in sorted(request.collections or mine)]
        response = rag_pb2.RetrieveResponse(
            index_version=",".join(versions),
            is_prefetch_hit=any(p.request_id == request.request_id for p in self.prefetches),
            is_lossy=self.is_lossy,
            overlap_ms=self.overlap_ms,
        )
        response.passages.add(ref=mesh_pb2.PassageRef(collection="c", document_id="d"), text="a passage")
        await call.write(response.SerializeToString())

    async def embed(self, call: Call) -> None:
        self.embedded.append(rag_pb2.EmbedRequest.FromString(call.request))
        await self._meet()
        count = len(self.embedded[-1].texts)
        response = rag_pb2.EmbedResponse(embedder="scripted", vectors=[b"\0\0\x80?"] * count)
        await call.write(response.SerializeToString())

    async def _take(self, call: Call) -> None:
        """Remembers the call and answers with an empty message."""
        self.calls.append(call)
        await self._meet()
        await call.write(b"")

    upsert_documents = delete_documents = list_documents = _take
    get_prefetch_usage = warm_queries = _take
    create_snapshot = list_snapshots = restore_snapshot = delete_snapshot = _take

    def service(self) -> Service:
        return bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], self)
