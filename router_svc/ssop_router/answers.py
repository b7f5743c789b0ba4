# cython: annotation_typing=False
"""The cache service as requests see it: admission with look-up, leases that others follow, settlement.

`answers.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from ssop.v1.cache_pb2 import (
    AppendRequest,
    AppendResponse,
    CacheOutcome,
    FollowRequest,
    FollowResponse,
    LookupRequest,
    LookupResponse,
    StoredAnswer,
)
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import Usage
from ssop_chassis.deadline import running_loop
from ssop_chassis.errors import MeshError
from ssop_codec import CODEC_VERSION
from ssop_router.background import Background
from ssop_router.core.cache_key import CanonicalRequest, cache_key
from ssop_router.core.envelope import Admitted
from ssop_router.core.envelopes import write_admission, write_settlement
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.tuples import make
from ssop_router.crowd import Commit, Crowd, Hear
from ssop_router.dependency import Dependency, InnerMetadata, Lane, Unavailable
from ssop_router.job import Job
from ssop_router.kept import Kept
from ssop_router.lease import Lease
from ssop_router.limits import Limits
from ssop_router.metrics import RouterMetrics
from ssop_router.promises import Promises
from ssop_router.renewals import Renewals
from ssop_router.settings import RouterSettings
from ssop_router.settlement import Counts

_SERVICE: Final = "/ssop.v1.CacheService/"
_BYTES_PER_TOKEN: Final = 3
_TEMPLATE_VERSION: Final = ""
_WIRE_VERSION: Final = 1
_MOST_RESERVED: Final = 2**32 - 1
"""What an AdmitRequest holds, in tokens: a limit of output that is next to none is not to be a fault."""
_SETTLE_PAUSES_S: Final = (0.2, 1.0, 2.0)
# Looking a name up in an enum of protobuf costs as much as an object.
_LEASE: Final = CacheOutcome.CACHE_OUTCOME_LEASE
_HIT: Final = CacheOutcome.CACHE_OUTCOME_HIT
_NOT_GENERATING: Final = (_HIT, CacheOutcome.CACHE_OUTCOME_FOLLOW)
_NO_ANSWER: Final = StoredAnswer()
"""Never changed: of an admission that found none."""
_LANE_WIDTH: Final = 8
_MOST_WAITING: Final = 8_192
"""Calls that wait for their turn. Requests in flight are fewer; settlements outlive them."""


class Admission(NamedTuple):
    """A request that was let in. `lease` is set for its leader."""

    outcome: CacheOutcome.ValueType = CacheOutcome.CACHE_OUTCOME_UNSPECIFIED
    answer: StoredAnswer = _NO_ANSWER
    lease: Lease | None = None


NOT_ADMITTED: Final = Admission()
"""Of a request that was not, or without a cache service."""


def make_key(job: Job, collections: tuple[str, ...], index_version: str) -> bytes:
    """The canonical key of a request's answer."""
    return cache_key(describe_request(job, collections, index_version))


def describe_request(job: Job, collections: tuple[str, ...], index_version: str) -> CanonicalRequest:
    """All that shapes the answer. The tier stands for the model: names of it may differ, answers not."""
    parts, schema = job.parts, job.schema
    return make(
        CanonicalRequest,
        (
            job.tenant,
            job.principal.scopes,
            "cascade" if job.features.policy.is_cascade else WORD_OF_TIER[job.decision.tier],
            parts.sampling,
            _TEMPLATE_VERSION,
            (b"1" if parts.is_format_asserted else b"0") + schema.hash if schema is not None else b"",
            index_version,
            parts.messages,
            parts.tools,
            parts.tool_choice,
            collections,
            job.request.retrieval.top_k if collections else 0,
            parts.buffer_bytes,
            _WIRE_VERSION,
            CODEC_VERSION,
        ),
    )


class Answers:
    """Calls of the cache service, each with its deadline.

    `levels` is the same service for look-ups without admission: stored answers may be had where limits can't be asked.
    """

    def __init__(
        self,
        cache: Dependency | None,
        settings: RouterSettings,
        background: Background,
        metrics: RouterMetrics,
        limits: Limits,
        *,
        sign_own: Callable[[], InnerMetadata],
        levels: Dependency | None = None,
    ) -> None:
        self._cache = cache
        self.is_configured = cache is not None
        """There is a cache service."""
        self._kept = Kept(levels, settings, background) if levels is not None else None
        self._limits = limits
        self.settings: Final = settings
        self.metrics: Final = metrics
        self._output_tokens = settings.reserve_output_tokens
        self._lease_ms = settings.lease_ms
        self._reservation_ms = settings.reservation_ms
        self._background = background
        # Apart from each other: neither a crowd at the door nor one that leaves delays what leaders write.
        self._leading = Lane(_LANE_WIDTH, _MOST_WAITING)
        self._promises = Promises(settings.promise_wait_ms / 1000)
        self._entry = self._exit = None
        self.renewals: Renewals | None = None
        if cache is not None:
            # With the time in which a service that waits for Redis in vain says so itself.
            admission_s = (settings.admission_timeout_ms + settings.hop_margin_ms) / 1000
            self._entry = Crowd(cache, background, timeout_s=admission_s, most_waiting=_MOST_WAITING, metadata=sign_own)
            self._exit = Crowd(
                cache,
                background,
                timeout_s=settings.settle_timeout_ms / 1000,
                most_waiting=_MOST_WAITING,
                metadata=sign_own,
            )
            self.renewals = Renewals(cache, settings, background, metrics)

    async def admit(self, job: Job, key: bytes) -> Admission:
        """Admit the request and look its answer up; an empty key only admits.

        Raises RATE_LIMITED and QUOTA_EXHAUSTED, and Unavailable where the cache does not answer in time. Where serving
        without it would break a promise, that is a longer time: see Promises.
        """
        if self._cache is None:
            return NOT_ADMITTED
        asked_s = monotonic()
        outcome, fencing_token, stored, _ = await self._promises.keep(
            partial(self._ask, job, key),
            key,
            has_budget=self._limits.has_budget,
            remaining_s=job.remaining_s,
            has_other=partial(self._has_kept, job, key),
        )
        lease = Lease(self, key, fencing_token, job) if outcome == _LEASE else None
        if self.renewals is not None and outcome not in _NOT_GENERATING:
            self.renewals.hold(job, lease, monotonic() - asked_s)
        try:
            answer = StoredAnswer.FromString(stored) if outcome == _HIT else _NO_ANSWER
        except DecodeError as error:
            # The envelope was looked at, and not what is in it.
            raise Unavailable(self._cache.name) from error
        return make(Admission, (outcome, answer, lease))

    def _ask(self, job: Job, key: bytes) -> Awaitable[Admitted]:
        features = job.features
        output_tokens = features.max_output_tokens or self._output_tokens
        generations = 2 if features.policy.is_cascade else 1
        input_tokens = features.prompt_bytes // _BYTES_PER_TOKEN
        request = write_admission(
            job.request_id,
            key,
            min(_MOST_RESERVED, generations * (input_tokens + output_tokens)),
            self._lease_ms,
            job.request.cache.max_age_ms,
            features.policy.is_cache_only,
            self._limits.share(),
            self._reservation_ms,
        )
        return self._admit(request, job.inner_metadata, job, key)

    async def _has_kept(self, job: Job, key: bytes, error: Unavailable) -> bool:
        return await self.find_kept(job, key, error) is not None

    def _give_back(self, job: Job, key: bytes, response: Admitted) -> None:
        """The request went while it was admitted: nobody is to follow a generation that never begins."""
        if response.outcome == _LEASE:
            Lease(self, key, response.fencing_token, job).give_up("cancelled")

    async def admit_call(self, request_id: str, metadata: InnerMetadata) -> None:
        """Admit a call that generates nothing: it counts for the rate limit and reserves no tokens.

        Raises RATE_LIMITED, and Unavailable where the cache does not answer in time.
        """
        if self._cache is None:
            return
        request = write_admission(request_id, b"", 0, self._lease_ms, 0, True, self._limits.share(), 0)
        await self._admit(request, metadata)

    def admit_alone(self, tenant: str, *, is_generating: bool = True) -> tuple[str, ...]:
        """Hold a request to this router's share of the limits after Unavailable; names what is not whole.

        Raises RATE_LIMITED; STORE_UNAVAILABLE where a token budget can't be checked, and tokens would be used.
        """
        return self._limits.admit(tenant, is_generating=is_generating)

    async def _admit(
        self, request: bytes, metadata: InnerMetadata, job: Job | None = None, key: bytes = b""
    ) -> Admitted:
        """For a job an answer is looked for beside when this is late, and a lease that is too late given up."""
        on_late = partial(self._give_back, job, key) if job is not None else None
        try:
            asked = _require_crowd(self._entry).admit(request, metadata, on_late)
            if self._kept is not None and job is not None:
                self._kept.watch(asked, job, key)
            response = await asked
        except asyncio.CancelledError:
            # The response may have come in the very turn in which the request went.
            is_answered = asked.done() and not asked.cancelled() and asked.exception() is None
            if is_answered and on_late is not None:
                on_late(asked.result())
            raise
        except Unavailable as error:
            self._limits.hear_failure(error.__cause__)
            raise
        except MeshError:
            self._limits.hear_answer()
            raise
        self._limits.learn(response.limits)
        return response

    async def look_up(self, job: Job, key: bytes) -> bool:
        """Whether an answer is stored. Raises Unavailable."""
        if self._cache is None:
            return False
        request = LookupRequest(cache_key=key, max_age_ms=job.request.cache.max_age_ms)
        timeout_s = min(self.settings.admission_timeout_ms / 1000, job.remaining_s())
        response = LookupResponse.FromString(
            await self._call("Lookup", request.SerializeToString(), timeout_s, job, self._leading)
        )
        return response.outcome == _HIT

    async def find_kept(self, job: Job, key: bytes, error: Unavailable) -> StoredAnswer | None:
        """The stored answer after an admission failed, where a level that still answers has it."""
        return await self._kept.find(job, key, error) if self._kept is not None else None

    async def follow(self, job: Job, key: bytes, on_chunk: Callable[[bytes], Awaitable[None]]) -> None:
        """Follow the leader's frames until its commit. Raises LEASE_LOST, REQUEST_UNKNOWN and Unavailable."""
        await self._require().stream(
            f"{_SERVICE}Follow",
            FollowRequest(cache_key=key).SerializeToString(),
            partial(_pass_on, on_chunk),
            timeout_s=max(0.001, job.remaining_s() - self.settings.hop_margin_ms / 1000),
            metadata=job.inner_metadata,
        )

    def settle(self, job: Job, usage: Usage, counts: Counts, commit: Commit | None = None) -> None:
        """Give the rest of a reservation back: begun at once, and tried again in the background.

        It is charged once, whatever is heard. `commit` goes along, and is tried once.
        """
        tier, counted = counts
        asked, answered = self.metrics.charged_of[tier]
        asked.inc(usage.input_tokens)
        answered.inc(usage.output_tokens)
        request = write_settlement(job.request_id, usage.SerializeToString(), counted)

        self._ask_to_settle(job, request, partial(self._hear_settled, job, request), commit)

    def _hear_settled(self, job: Job, request: bytes, error: BaseException | None) -> None:
        if self._has_settled(error):
            self._end_reservation(job)
        else:
            self._background.start(self._settle_later(job, request))

    async def _settle_later(self, job: Job, request: bytes) -> None:
        """Until then it stays reserved; what is never settled is left to lapse, and counted."""
        try:
            for pause_s in _SETTLE_PAUSES_S:
                await asyncio.sleep(pause_s)
                heard: asyncio.Future[BaseException | None] = running_loop().create_future()
                self._ask_to_settle(job, request, partial(_tell, heard))
                if self._has_settled(await heard):
                    return
            self.metrics.settle_failures.inc()
        finally:
            self._end_reservation(job)

    def _ask_to_settle(self, job: Job, request: bytes, hear: Hear, commit: Commit | None = None) -> None:
        try:
            _require_crowd(self._exit).settle(request, job.inner_metadata, hear, commit)
        except (Unavailable, MeshError) as error:
            if commit is not None:
                commit.conclude(error)
            hear(error)

    def _has_settled(self, error: BaseException | None) -> bool:
        """False where it is to be tried again. What is refused, or not asked any more, lapses and is counted."""
        if error is None:
            return True
        if isinstance(error, Unavailable):
            return False
        if isinstance(error, MeshError) and error.reason == ErrorReason.ERROR_REASON_OVERLOADED:
            # Of the service's own that is Unavailable: too many wait here.
            return False
        self.metrics.settle_failures.inc()
        return True

    def _end_reservation(self, job: Job) -> None:
        if self.renewals is not None:
            self.renewals.drop_reservation(job)

    async def append(self, lease: Lease, chunk: bytes) -> AppendResponse:
        """Append to a generation. Raises LEASE_LOST and Unavailable."""
        request = AppendRequest(
            cache_key=lease.key,
            fencing_token=lease.fencing_token,
            chunk=chunk,
            lease_ms=self._lease_ms,
        )
        timeout_s = self.settings.settle_timeout_ms / 1000
        message = await self._call("Append", request.SerializeToString(), timeout_s, lease.job, self._leading)
        return AppendResponse.FromString(message)

    async def commit(self, lease: Lease, message: bytes) -> None:
        """End a generation by a CommitRequest, apart from its settlement. Raises LEASE_LOST and Unavailable."""
        timeout_s = self.settings.settle_timeout_ms / 1000
        await self._call("Commit", message, timeout_s, lease.job, self._leading)

    def start(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        """Run something that outlives its request."""

        async def run() -> None:
            await work

        return self._background.start(run())

    async def _call(self, method: str, request: bytes, timeout_s: float, job: Job, lane: Lane) -> bytes:
        metadata: InnerMetadata = job.inner_metadata
        return await self._require().unary(
            _SERVICE + method, request, timeout_s=timeout_s, metadata=metadata, lane=lane
        )

    def _require(self) -> Dependency:
        if self._cache is None:
            raise Unavailable("cache")
        return self._cache


def _tell(heard: "asyncio.Future[BaseException | None]", error: BaseException | None) -> None:
    if not heard.done():
        heard.set_result(error)


def _pass_on(on_chunk: Callable[[bytes], Awaitable[None]], message: bytes) -> Awaitable[None]:
    return on_chunk(FollowResponse.FromString(message).chunk)


def _require_crowd(crowd: Crowd | None) -> Crowd:
    if crowd is None:
        raise Unavailable("cache")
    return crowd
