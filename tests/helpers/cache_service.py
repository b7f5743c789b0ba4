"""The cache service in the test's process, and a client for each tenant."""

import math
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from helpers.redis_server import RedisServer
from ssop.v1 import cache_pb2, mesh_pb2, usage_pb2
from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.frame_pb2 import FRAME_KIND_END, FRAME_KIND_VALUE, VERDICT_OK, Chunk, Verdict
from ssop_cache.main import Cache, open_cache
from ssop_cache.settings import CacheSettings
from ssop_chassis.call import Metadata
from ssop_chassis.identity import PRINCIPAL_METADATA, Principal
from ssop_chassis.memory import MemoryPeer, MemoryStream

HIT = CacheOutcome.CACHE_OUTCOME_HIT
LEASE = CacheOutcome.CACHE_OUTCOME_LEASE
FOLLOW = CacheOutcome.CACHE_OUTCOME_FOLLOW
MISS = CacheOutcome.CACHE_OUTCOME_MISS


LEASE_MS = 60_000
"""Long enough for the slowest test; what is about its end names its own."""
SCOPE = b"\7" * 32
"""A scope of similar answers."""


def unit_vector(angle: float = 0.0) -> bytes:
    """A vector of length 1, as the embedder gives it."""
    return struct.pack("<3f", math.cos(angle), math.sin(angle), 0.0)


def pieces(*texts: str, verdict: Verdict.ValueType = VERDICT_OK) -> list[bytes]:
    """An answer as chunks: one for each text, the end with the last."""
    chunks = []
    for seq, text in enumerate(texts, start=1):
        chunk = Chunk()
        chunk.frames.add(seq=seq, kind=FRAME_KIND_VALUE, string_value=text)
        if seq == len(texts):
            end = chunk.frames.add(seq=seq + 1, kind=FRAME_KIND_END)
            end.end.verdict = verdict
        chunks.append(chunk.SerializeToString())
    return chunks


def answer(text: str = "yes", *, verdict: Verdict.ValueType = VERDICT_OK) -> bytes:
    """A whole answer as one chunk."""
    return b"".join(pieces(text, verdict=verdict))


class CacheClient:
    """Calls the service for one tenant."""

    def __init__(self, peer: MemoryPeer, tenant: str) -> None:
        self._peer = peer
        self._metadata: Metadata = {"x-tenant-bin": tenant.encode()}

    async def _unary(self, name: str, request: Any, response: Any) -> Any:
        path = f"/ssop.v1.CacheService/{name}"
        data = await self._peer.unary(path, request.SerializeToString(), timeout_s=60, metadata=self._metadata)
        return response.FromString(data)

    async def admit(
        self,
        request_id: str,
        key: bytes = b"",
        *,
        tokens: int = 10,
        lease_ms: int = LEASE_MS,
        max_age_ms: int = 0,
        no_lease: bool = False,
    ) -> cache_pb2.AdmitResponse:
        request = cache_pb2.AdmitRequest(
            request_id=request_id,
            cache_key=key,
            reserve_tokens=tokens,
            lease_ms=lease_ms,
            max_age_ms=max_age_ms,
            no_lease=no_lease,
        )
        response: cache_pb2.AdmitResponse = await self._unary("Admit", request, cache_pb2.AdmitResponse)
        return response

    async def settle(self, request_id: str, input_tokens: int, output_tokens: int = 0) -> int:
        usage = mesh_pb2.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        counts = usage_pb2.RequestCounts(tier=mesh_pb2.TIER_LITE)
        request = cache_pb2.SettleRequest(request_id=request_id, usage=usage, counts=counts)
        response: cache_pb2.SettleResponse = await self._unary("Settle", request, cache_pb2.SettleResponse)
        return response.charged_tokens

    async def usage(self, days: int = 1) -> Sequence[usage_pb2.DayUsage]:
        request = cache_pb2.ReadUsageRequest(days=days)
        response: cache_pb2.ReadUsageResponse = await self._unary("ReadUsage", request, cache_pb2.ReadUsageResponse)
        return response.days

    async def lookup(self, key: bytes, *, max_age_ms: int = 0) -> cache_pb2.LookupResponse:
        request = cache_pb2.LookupRequest(cache_key=key, max_age_ms=max_age_ms)
        response: cache_pb2.LookupResponse = await self._unary("Lookup", request, cache_pb2.LookupResponse)
        return response

    async def append(self, key: bytes, fence: int, chunk: bytes = b"", *, lease_ms: int = LEASE_MS) -> bool:
        request = cache_pb2.AppendRequest(cache_key=key, fencing_token=fence, chunk=chunk, lease_ms=lease_ms)
        response: cache_pb2.AppendResponse = await self._unary("Append", request, cache_pb2.AppendResponse)
        return response.has_followers

    async def commit(
        self,
        key: bytes,
        fence: int,
        chunk: bytes = b"",
        *,
        is_complete: bool = True,
        model: str = "small",
        ttl_ms: int = 0,
    ) -> None:
        request = cache_pb2.CommitRequest(
            cache_key=key, fencing_token=fence, chunk=chunk, is_complete=is_complete, model=model, ttl_ms=ttl_ms
        )
        await self._unary("Commit", request, cache_pb2.CommitResponse)

    async def flush(self, key: bytes = b"") -> None:
        await self._unary("Flush", cache_pb2.FlushRequest(cache_key=key), cache_pb2.FlushResponse)

    async def stats(self) -> CacheStats:
        response: cache_pb2.ReadStatsResponse = await self._unary(
            "ReadStats", cache_pb2.ReadStatsRequest(), cache_pb2.ReadStatsResponse
        )
        return response.stats

    async def store(self, request_id: str, key: bytes, chunk: bytes, *, ttl_ms: int = 0) -> int:
        """Generate and store an answer; its fence."""
        fence: int = (await self.admit(request_id, key, max_age_ms=1)).fencing_token
        assert fence
        await self.commit(key, fence, chunk, ttl_ms=ttl_ms)
        return fence

    async def put_similar(self, text: str, cache_key: bytes, **fields: Any) -> bool:
        """Make a stored answer findable by its question. Fields left out are those of `find_similar`."""
        values: dict[str, Any] = {"scope_key": SCOPE, "vector": unit_vector(), "embedder": "e"} | fields
        request = cache_pb2.PutSimilarRequest(text=text, cache_key=cache_key, **values)
        response: cache_pb2.PutSimilarResponse = await self._unary("PutSimilar", request, cache_pb2.PutSimilarResponse)
        return response.is_kept

    async def find_similar(self, text: str, **fields: Any) -> cache_pb2.FindSimilarResponse:
        """The answer to a question that says the same, near enough."""
        values: dict[str, Any] = {"scope_key": SCOPE, "vector": unit_vector(0.1), "embedder": "e"} | fields
        request = cache_pb2.FindSimilarRequest(text=text, **{"min_similarity": 0.9} | values)
        response: cache_pb2.FindSimilarResponse = await self._unary(
            "FindSimilar", request, cache_pb2.FindSimilarResponse
        )
        return response

    def open_follow(self, key: bytes) -> MemoryStream:
        request = cache_pb2.FollowRequest(cache_key=key)
        path = "/ssop.v1.CacheService/Follow"
        return self._peer.open(path, request.SerializeToString(), timeout_s=60, metadata=self._metadata)

    async def follow(self, key: bytes) -> bytes:
        """All that comes, joined; raises the error that ends it."""
        async with self.open_follow(key) as stream:
            got = b""
            while (message := await stream.read()) is not None:
                got += cache_pb2.FollowResponse.FromString(message).chunk
            return got


@dataclass(frozen=True)
class CacheUnderTest:
    """A running service."""

    cache: Cache
    registry: CollectorRegistry
    peer: MemoryPeer

    def client(self, tenant: str = "acme") -> CacheClient:
        return CacheClient(self.peer, tenant)

    def metric(self, name: str, **labels: str) -> float:
        """A sample's value; 0 when it was never counted."""
        return self.registry.get_sample_value(name, labels) or 0.0


def _authenticate(metadata: Metadata) -> Principal:
    # An entry of a batch has its tenant where others have their signed principal.
    tenant = metadata.get("x-tenant-bin", metadata.get(PRINCIPAL_METADATA))
    assert isinstance(tenant, bytes)
    return Principal(tenant.decode(), "k1")


def memory_peer(cache: Cache) -> MemoryPeer:
    """A peer of the service whose metadata names the tenant."""
    return MemoryPeer(cache.services, _authenticate)


@asynccontextmanager
async def running_cache(
    state: RedisServer | None, cache: RedisServer, **settings: Any
) -> AsyncIterator[CacheUnderTest]:
    """The service on two instances, in memory. `state` None: the settings say where the state is.

    `authenticate` may be among them, for callers that sign what they send.
    """
    authenticate = settings.pop("authenticate", _authenticate)
    # A loaded build machine stalls for longer than production's 50 ms; tests of that bound give it.
    values = {"redis_timeout_ms": 2000, "connection_wait_ms": 30_000, "cache_url": cache.url} | settings
    if state is not None:
        values["state_url"] = state.url
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        opened = open_cache(CacheSettings(**values), registry, stack, authenticate=authenticate)
        await opened.roles.wait_until_right()
        yield CacheUnderTest(opened, registry, memory_peer(opened))
