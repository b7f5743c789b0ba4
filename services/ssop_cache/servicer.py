"""CacheService. The tenant comes from the principal and from nowhere else."""

import logging
from typing import Final

from ssop.v1 import cache_pb2
from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CacheLevel
from ssop_cache.admissions import Admissions, describe_answer
from ssop_cache.answers import AnswerStore
from ssop_cache.batches import Batches
from ssop_cache.checks import check_key, check_lease, check_ttl
from ssop_cache.conclusions import Conclusions
from ssop_cache.core import scripts
from ssop_cache.core.fill import Fill
from ssop_cache.core.grants import Grants
from ssop_cache.core.keys import Layout
from ssop_cache.core.usage import read_days
from ssop_cache.feeds import Feeds
from ssop_cache.fill_watch import FillWatch
from ssop_cache.messages import read_admit, read_commit, read_settle
from ssop_cache.metrics import CacheMetrics
from ssop_cache.renewal import renew
from ssop_cache.settings import CacheSettings
from ssop_cache.similar import SimilarAnswers
from ssop_cache.store import RedisStore
from ssop_chassis.call import Call
from ssop_chassis.dispatch import Authenticate
from ssop_chassis.errors import MeshError, invalid_request

MAX_MESSAGE_BYTES: Final = 262_144
"""Chunks for a follower are joined up to this size."""
_log = logging.getLogger(__name__)


class CacheServicer:
    """Translates messages to scripts and replies to messages."""

    def __init__(
        self,
        state: RedisStore,
        answers: AnswerStore,
        feeds: Feeds,
        *,
        similar: SimilarAnswers,
        fill: FillWatch,
        layout: Layout,
        settings: CacheSettings,
        metrics: CacheMetrics,
        authenticate: Authenticate,
    ) -> None:
        self._state = state
        grants = Grants()
        self._admissions = Admissions(state, answers, layout, settings.limits, metrics, grants=grants)
        self._conclusions = Conclusions(state, answers, layout, settings, metrics, grants=grants)
        self._batches = Batches(authenticate, self._admissions, self._conclusions)
        self._answers = answers
        self._feeds = feeds
        self._similar = similar
        self._fill = fill
        self._layout = layout
        self._settings = settings
        self._metrics = metrics

    async def admit(self, call: Call) -> None:
        """See CacheService.Admit."""
        request = read_admit(cache_pb2.AdmitRequest.FromString(call.request))
        response = await self._admissions.admit(call.principal.tenant, request)
        await call.write(response.SerializeToString())

    async def settle(self, call: Call) -> None:
        """See CacheService.Settle."""
        request = read_settle(cache_pb2.SettleRequest.FromString(call.request))
        charged = await self._conclusions.settle(call.principal.tenant, request)
        await call.write(cache_pb2.SettleResponse(charged_tokens=charged).SerializeToString())

    async def run_batch(self, call: Call) -> None:
        """See CacheService.RunBatch."""
        await call.write(await self._batches.run(call))

    async def renew(self, call: Call) -> None:
        """See CacheService.Renew."""
        request = cache_pb2.RenewRequest.FromString(call.request)
        response = await renew(self._state, self._layout.of_tenant(call.principal.tenant), request)
        await call.write(response.SerializeToString())

    async def read_usage(self, call: Call) -> None:
        """See CacheService.ReadUsage."""
        request = cache_pb2.ReadUsageRequest.FromString(call.request)
        key = self._layout.of_tenant(call.principal.tenant).usage
        reply = await self._state.command("HGETALL", key, key=key)
        fields = {name.decode(): int(amount) for name, amount in reply.items()}
        # The clock by which the days were counted.
        seconds, _ = await self._state.command("TIME", key=key)
        now_ms = int(seconds) * 1000
        response = cache_pb2.ReadUsageResponse(days=read_days(fields, days=request.days, now_ms=now_ms))
        await call.write(response.SerializeToString())

    async def lookup(self, call: Call) -> None:
        """See CacheService.Lookup. Raises STORE_UNAVAILABLE when the cache instance does not answer."""
        request = cache_pb2.LookupRequest.FromString(call.request)
        check_key(request.cache_key)
        answer = await self._answers.find(call.principal.tenant, request.cache_key, max_age_ms=request.max_age_ms)
        response = cache_pb2.LookupResponse(outcome=CacheOutcome.CACHE_OUTCOME_MISS)
        if answer is not None:
            response = cache_pb2.LookupResponse(outcome=CacheOutcome.CACHE_OUTCOME_HIT, answer=describe_answer(answer))
        await call.write(response.SerializeToString())

    async def flush(self, call: Call) -> None:
        """See CacheService.Flush."""
        request = cache_pb2.FlushRequest.FromString(call.request)
        check_key(request.cache_key, is_required=False)
        tenant = call.principal.tenant
        if request.cache_key:
            await self._answers.drop(tenant, request.cache_key)
        else:
            await self._answers.flush(tenant)
            _log.warning("the stored answers of a tenant were flushed", extra={"tenant": tenant})
        await call.write(cache_pb2.FlushResponse().SerializeToString())

    async def read_stats(self, call: Call) -> None:
        """See CacheService.ReadStats."""
        cache_pb2.ReadStatsRequest.FromString(call.request)
        await call.write(
            cache_pb2.ReadStatsResponse(
                stats=describe_levels(self._answers, self._similar, self._fill.fullest)
            ).SerializeToString()
        )

    async def put_similar(self, call: Call) -> None:
        """See CacheService.PutSimilar."""
        request = cache_pb2.PutSimilarRequest.FromString(call.request)
        check_key(request.scope_key, path="scope_key")
        check_key(request.cache_key)
        check_ttl(request.ttl_ms)
        is_kept = await self._similar.put(
            call.principal.tenant,
            request.scope_key,
            request.text,
            request.vector,
            cache_key=request.cache_key,
            embedder=request.embedder,
            ttl_ms=request.ttl_ms or self._settings.answer_ttl_ms,
        )
        await call.write(cache_pb2.PutSimilarResponse(is_kept=is_kept).SerializeToString())

    async def find_similar(self, call: Call) -> None:
        """See CacheService.FindSimilar."""
        request = cache_pb2.FindSimilarRequest.FromString(call.request)
        check_key(request.scope_key, path="scope_key")
        if not -1 <= request.min_similarity <= 1:
            raise invalid_request(("min_similarity", "must be from -1 to 1"))
        found = await self._similar.find(
            call.principal.tenant,
            request.scope_key,
            request.text,
            request.vector,
            embedder=request.embedder,
            max_age_ms=request.max_age_ms,
            min_similarity=request.min_similarity,
        )
        response = cache_pb2.FindSimilarResponse()
        if found is not None:
            response = cache_pb2.FindSimilarResponse(
                answer=describe_answer(found.answer), similarity=found.similarity, cache_key=found.cache_key
            )
        await call.write(response.SerializeToString())

    async def follow(self, call: Call) -> None:
        """See CacheService.Follow."""
        request = cache_pb2.FollowRequest.FromString(call.request)
        check_key(request.cache_key)
        async with self._feeds.attach(call.principal.tenant, request.cache_key) as feed:
            sent = 0
            while True:
                while sent < len(feed.chunks):
                    last, size = sent + 1, len(feed.chunks[sent])
                    while last < len(feed.chunks) and size + len(feed.chunks[last]) <= MAX_MESSAGE_BYTES:
                        size += len(feed.chunks[last])
                        last += 1
                    chunk = b"".join(feed.chunks[sent:last])
                    sent = last
                    if chunk:
                        await call.write(cache_pb2.FollowResponse(chunk=chunk).SerializeToString())
                if feed.error is not None:
                    raise feed.error
                if feed.is_ended:
                    return
                await feed.wait()

    async def append(self, call: Call) -> None:
        """See CacheService.Append."""
        request = cache_pb2.AppendRequest.FromString(call.request)
        check_key(request.cache_key)
        check_lease(request.lease_ms)
        outcome, _, followed, overflowed = await self._state.run(
            scripts.append(
                self._layout.of_tenant(call.principal.tenant),
                request.cache_key,
                request.fencing_token,
                request.chunk,
                lease_ms=request.lease_ms,
                max_backlog_bytes=self._settings.max_backlog_bytes,
            )
        )
        if outcome == b"lost":
            raise _lease_lost()
        if overflowed and request.chunk:
            self._metrics.overflows.inc()
        await call.write(cache_pb2.AppendResponse(has_followers=bool(followed)).SerializeToString())

    async def commit(self, call: Call) -> None:
        """See CacheService.Commit. An answer that is not whole is given up: REQUEST_INVALID."""
        request = read_commit(cache_pb2.CommitRequest.FromString(call.request))
        await self._conclusions.commit(call.principal.tenant, request)
        await call.write(cache_pb2.CommitResponse().SerializeToString())


def describe_levels(answers: AnswerStore, similar: SimilarAnswers, fill: Fill) -> CacheStats:
    """What the levels hold and did, and how full the state is."""
    stats = CacheStats(
        local_hits=answers.hits[CacheLevel.CACHE_LEVEL_LOCAL],
        shared_hits=answers.hits[CacheLevel.CACHE_LEVEL_SHARED],
        misses=answers.hits[CacheLevel.CACHE_LEVEL_UNSPECIFIED],
        similar_hits=similar.hits,
        similar_refusals={guard.value: count for guard, count in similar.refusals.items()},
        state_used_bytes=fill.used_bytes,
        state_max_bytes=fill.max_bytes,
    )
    if (local := answers.local) is not None:
        stats.has_local = True
        stats.local_answers, stats.local_bytes = len(local.answers), local.answers.size_bytes
        stats.local_max_bytes = local.answers.max_bytes
        stats.is_local_kept, stats.is_local_synced = local.is_kept, local.is_synced
    return stats


def _lease_lost() -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_LEASE_LOST, "the lease is over, or another request has it")
