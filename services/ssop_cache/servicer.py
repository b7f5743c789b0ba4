"""CacheService. The tenant comes from the principal and from nowhere else."""

import logging
from typing import Final

from ssop.v1 import cache_pb2
from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.cache_pb2 import CacheOutcome
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import CacheLevel
from ssop_cache.answers import Answer, AnswerStore
from ssop_cache.batches import Batches
from ssop_cache.checks import check_key, check_lease, check_request_id, check_share, check_ttl
from ssop_cache.core import scripts
from ssop_cache.core.keys import Layout
from ssop_cache.core.records import is_whole
from ssop_cache.core.scripts import Admission, Admit, Limits, Outcome
from ssop_cache.core.usage import count_request, read_days
from ssop_cache.feeds import Feeds
from ssop_cache.metrics import CacheMetrics
from ssop_cache.renewal import renew
from ssop_cache.settings import CacheSettings
from ssop_cache.similar import SimilarAnswers
from ssop_cache.store import RedisStore
from ssop_chassis.call import Call
from ssop_chassis.dispatch import Authenticate
from ssop_chassis.errors import MeshError, invalid_request

MAX_MODEL_BYTES: Final = 256
MAX_MESSAGE_BYTES: Final = 262_144
"""Chunks for a follower are joined up to this size."""
_RECHECKS: Final = 3
_OUTCOMES: Final = {
    Outcome.HIT: CacheOutcome.CACHE_OUTCOME_HIT,
    Outcome.LEASE: CacheOutcome.CACHE_OUTCOME_LEASE,
    Outcome.FOLLOW: CacheOutcome.CACHE_OUTCOME_FOLLOW,
    Outcome.MISS: CacheOutcome.CACHE_OUTCOME_MISS,
}
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
        layout: Layout,
        settings: CacheSettings,
        metrics: CacheMetrics,
        authenticate: Authenticate,
    ) -> None:
        self._state = state
        self._batches = Batches(authenticate, self._answer_admission, self._answer_settlement)
        self._answers = answers
        self._feeds = feeds
        self._similar = similar
        self._layout = layout
        self._settings = settings
        self._limits = settings.limits
        self._told = cache_pb2.TenantLimits(
            max_rps=self._limits.max_rps,
            burst=self._limits.burst,
            is_dynamic=self._limits.is_dynamic,
            min_rps=self._limits.min_rps,
            has_budget=self._limits.budget_tokens > 0,
        )
        self._metrics = metrics

    async def admit(self, call: Call) -> None:
        """See CacheService.Admit."""
        request = cache_pb2.AdmitRequest.FromString(call.request)
        response = await self._answer_admission(call.principal.tenant, request)
        await call.write(response.SerializeToString())

    async def settle(self, call: Call) -> None:
        """See CacheService.Settle."""
        request = cache_pb2.SettleRequest.FromString(call.request)
        response = await self._answer_settlement(call.principal.tenant, request)
        await call.write(response.SerializeToString())

    async def run_batch(self, call: Call) -> None:
        """See CacheService.RunBatch."""
        response = await self._batches.run(call)
        await call.write(response.SerializeToString())

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
            response = cache_pb2.LookupResponse(outcome=CacheOutcome.CACHE_OUTCOME_HIT, answer=_stored(answer))
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
            cache_pb2.ReadStatsResponse(stats=describe_levels(self._answers, self._similar)).SerializeToString()
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
                answer=_stored(found.answer), similarity=found.similarity, cache_key=found.cache_key
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
        request = cache_pb2.CommitRequest.FromString(call.request)
        check_key(request.cache_key)
        check_ttl(request.ttl_ms)
        if len(request.model.encode()) > MAX_MODEL_BYTES:
            raise invalid_request(("model", f"is longer than {MAX_MODEL_BYTES} bytes"))
        tenant = call.principal.tenant
        keys = self._layout.of_tenant(tenant)
        is_fit, is_stored = True, False
        if request.is_complete:
            sealed, _, *chunks = await self._state.run(scripts.seal(keys, request.cache_key, request.fencing_token))
            if sealed == b"lost":
                raise _lease_lost()
            chunk = b"".join((*map(scripts.data, chunks), request.chunk))
            if sealed == b"overflowed" or len(chunk) > self._settings.max_answer_bytes:
                self._metrics.not_stored.labels("too_large").inc()
            elif is_whole(chunk):
                is_stored = await self._store(tenant, request, chunk)
            else:
                is_fit = False
                self._metrics.not_stored.labels("not_whole").inc()
        outcome, _ = await self._state.run(
            scripts.commit(
                keys,
                request.cache_key,
                request.fencing_token,
                request.chunk,
                is_complete=request.is_complete and is_fit,
                is_stored=is_stored,
                max_backlog_bytes=self._settings.max_backlog_bytes,
            )
        )
        self._metrics.commits.labels(scripts.word(outcome)).inc()
        if outcome == b"lost":
            raise _lease_lost()
        if not is_fit:
            raise invalid_request(
                ("chunk", "is not a whole answer: frames from 1 without gaps to an end with verdict OK")
            )
        await call.write(cache_pb2.CommitResponse().SerializeToString())

    async def _answer_admission(self, tenant: str, request: cache_pb2.AdmitRequest) -> cache_pb2.AdmitResponse:
        check_request_id(request.request_id)
        check_key(request.cache_key, is_required=False)
        check_lease(request.lease_ms)
        if request.reservation_ms:
            check_lease(request.reservation_ms, path="reservation_ms")
        check_share(request.rate_share)
        limits = self._limits.under(request.rate_share)
        self._metrics.rate_limit_rps.set(limits.max_rps)
        try:
            admission, answer = await self._admit(tenant, request, limits)
        except MeshError as error:
            # A router that starts now must know what it is to hold by itself.
            error.metadata["limits"] = self._told.SerializeToString().hex()
            raise
        self._refuse(tenant, admission, limits)
        response = cache_pb2.AdmitResponse(
            outcome=_OUTCOMES[admission.outcome] if request.cache_key else CacheOutcome.CACHE_OUTCOME_UNSPECIFIED,
            fencing_token=admission.fence if admission.outcome is Outcome.LEASE else 0,
            limits=self._told,
        )
        if request.cache_key:
            self._metrics.lookups.labels(admission.outcome.value).inc()
        if answer is not None and admission.outcome is Outcome.HIT:
            response.answer.CopyFrom(_stored(answer))
        if admission.budget_left is not None:
            response.budget_left_tokens = admission.budget_left
        return response

    async def _answer_settlement(self, tenant: str, request: cache_pb2.SettleRequest) -> cache_pb2.SettleResponse:
        check_request_id(request.request_id)
        used = request.usage.input_tokens + request.usage.output_tokens
        keys = self._layout.of_tenant(tenant)
        counts = count_request(request.usage, request.counts) if request.HasField("counts") else None
        settlement = scripts.settle(keys, self._limits, request.request_id, used, counts)
        outcome, _, charged_reply = await self._state.run(settlement)
        charged = scripts.number(charged_reply)
        self._metrics.settlements.labels(scripts.word(outcome)).inc()
        self._metrics.charged_tokens.inc(charged)
        return cache_pb2.SettleResponse(charged_tokens=min(charged, 2**32 - 1))

    async def _admit(
        self, tenant: str, request: cache_pb2.AdmitRequest, limits: Limits
    ) -> tuple[Admission, Answer | None]:
        keys = self._layout.of_tenant(tenant)
        seen_fence = 0
        for _ in range(_RECHECKS):
            started_s = self._state.clock_s
            answer = await self._find(tenant, request) if request.cache_key else None
            # Both instances together may cost one time-out; what the first did not use is the second's.
            left_s = self._state.timeout_s - (self._state.clock_s - started_s)
            asked = Admit(
                request.request_id,
                request.cache_key,
                request.reserve_tokens,
                request.lease_ms,
                request.reservation_ms,
                is_found=answer is not None,
                wants_lease=not request.no_lease,
                seen_fence=seen_fence,
            )
            reply = await self._state.run(scripts.admit(keys, limits, asked), max(left_s, self._state.timeout_s / 2))
            admission = scripts.parse_admission(reply)
            if admission.outcome is not Outcome.RECHECK:
                return admission, answer
            seen_fence = admission.fence
        raise MeshError(
            ErrorReason.ERROR_REASON_STORE_UNAVAILABLE,
            "the answer changes faster than it can be read",
            retry_after_ms=100,
        )

    async def _find(self, tenant: str, request: cache_pb2.AdmitRequest) -> Answer | None:
        try:
            return await self._answers.find(
                tenant, request.cache_key, max_age_ms=request.max_age_ms, timeout_s=self._state.timeout_s / 2
            )
        except MeshError as error:
            # Without the cache instance limits hold as before, and every request is a miss; the metric says so.
            self._metrics.lookups.labels("unavailable").inc()
            _log.debug("served without stored answers", extra={"reason": error.reason_name})
            return None

    async def _store(self, tenant: str, request: cache_pb2.CommitRequest, chunk: bytes) -> bool:
        try:
            is_stored = await self._answers.put(
                tenant,
                request.cache_key,
                request.fencing_token,
                chunk,
                model=request.model,
                ttl_ms=request.ttl_ms or self._settings.answer_ttl_ms,
            )
        except MeshError:
            self._metrics.not_stored.labels("unavailable").inc()
            return False
        if not is_stored:
            self._metrics.not_stored.labels("superseded").inc()
        return is_stored

    def _refuse(self, tenant: str, admission: Admission, limits: Limits) -> None:
        """Raise the error of a refusal, if it is one."""
        retry_after_ms = admission.retry_ms if admission.retry_ms >= 0 else None
        match admission.outcome:
            case Outcome.RATE:
                self._metrics.refusals.labels("rate").inc()
                at_once = limits.tolerance_us // limits.interval_us
                limit = f"{limits.max_rps:g} requests per second, {at_once} at once"
                raise MeshError(
                    ErrorReason.ERROR_REASON_RATE_LIMITED,
                    "the tenant's rate of requests is used up",
                    quotas=[(f"tenant:{tenant}", limit)],
                    retry_after_ms=retry_after_ms,
                )
            case Outcome.QUOTA:
                self._metrics.refusals.labels("quota").inc()
                limit = f"{limits.budget_tokens} tokens per {limits.window_ms} ms"
                raise MeshError(
                    ErrorReason.ERROR_REASON_QUOTA_EXHAUSTED,
                    "the tenant's token budget is used up or reserved",
                    metadata={"budget_left_tokens": str(admission.budget_left or 0)},
                    quotas=[(f"tenant:{tenant}", limit)],
                    retry_after_ms=retry_after_ms,
                )
            case Outcome.DUPLICATE:
                self._metrics.refusals.labels("duplicate").inc()
                raise MeshError(
                    ErrorReason.ERROR_REASON_REQUEST_DUPLICATE, "a request with this id and another question runs"
                )


def _stored(answer: Answer) -> cache_pb2.StoredAnswer:
    return cache_pb2.StoredAnswer(chunk=answer.chunk, age_ms=answer.age_ms, model=answer.model, level=answer.level)


def describe_levels(answers: AnswerStore, similar: SimilarAnswers) -> CacheStats:
    """What the levels hold and did."""
    stats = CacheStats(
        local_hits=answers.hits[CacheLevel.CACHE_LEVEL_LOCAL],
        shared_hits=answers.hits[CacheLevel.CACHE_LEVEL_SHARED],
        misses=answers.hits[CacheLevel.CACHE_LEVEL_UNSPECIFIED],
        similar_hits=similar.hits,
        similar_refusals={guard.value: count for guard, count in similar.refusals.items()},
    )
    if (local := answers.local) is not None:
        stats.has_local = True
        stats.local_answers, stats.local_bytes = len(local.answers), local.answers.size_bytes
        stats.local_max_bytes = local.answers.max_bytes
        stats.is_local_kept, stats.is_local_synced = local.is_kept, local.is_synced
    return stats


def _lease_lost() -> MeshError:
    return MeshError(ErrorReason.ERROR_REASON_LEASE_LOST, "the lease is over, or another request has it")
