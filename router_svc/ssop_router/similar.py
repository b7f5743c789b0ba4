# cython: annotation_typing=False
"""Answers to similar questions: level 1 of the ladder and, where tenant and request ask for it, ordinary hits.

The retrieval service makes the vectors, the cache service finds and judges. Neither is asked before level 1 is reached,
unless the tenant opted in to hits; then a request waits `similar_timeout_ms` for both together, at most.

`similar.pxd` gives the types with which this very file is compiled.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ssop.v1.cache_pb2 import FindSimilarRequest, FindSimilarResponse, PutSimilarRequest, PutSimilarResponse
from ssop.v1.content_pb2 import Message, Role
from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.mesh_pb2 import DegradedReason
from ssop.v1.rag_pb2 import EmbedRequest, EmbedResponse
from ssop_chassis.errors import MeshError
from ssop_router.answers import describe_request
from ssop_router.citations import Citations
from ssop_router.core.cache_key import scope_key
from ssop_router.core.ladder import SIMILAR_LEVEL
from ssop_router.delivery import Delivery
from ssop_router.dependency import Dependency, Unavailable
from ssop_router.features import last_user_text
from ssop_router.job import Job, Question
from ssop_router.lease import Lease
from ssop_router.metrics import RouterMetrics
from ssop_router.retrieval import Collections
from ssop_router.settings import RouterSettings
from ssop_router.similar_settings import SimilarRules

R = ErrorReason
MAX_QUESTION_BYTES: Final = 8_192
_EMBED: Final = "/ssop.v1.RagService/Embed"
_FIND: Final = "/ssop.v1.CacheService/FindSimilar"
_PUT: Final = "/ssop.v1.CacheService/PutSimilar"
_NO_NODE: Final = frozenset({R.ERROR_REASON_NO_BACKEND, R.ERROR_REASON_DEGRADED_REFUSED})
_MAX_REMEMBERING: Final = 64


@dataclass(frozen=True, slots=True)
class Sources:
    """Who is asked; apart from those that requests depend on, so that neither says anything about the other."""

    embedder: Dependency | None
    index: Dependency | None


class Similar:
    """Finds similar answers, and makes answers findable."""

    def __init__(
        self,
        rules: SimilarRules,
        sources: Sources,
        citations: Citations,
        settings: RouterSettings,
        metrics: RouterMetrics,
    ) -> None:
        self._rules = rules
        self._sources = sources
        self._citations = citations
        self._settings = settings
        self._metrics = metrics
        self._remembering = 0

    def describe(self, job: Job, key: bytes, collections: Collections) -> Question | None:
        """The question of a request that may be answered by another's answer; None where it may not."""
        rule = self._rules.find(job.tenant, job.schema)
        if rule is None or not key:
            return None
        text = last_user_text(job.request.prompt)
        if not text.strip() or len(text.encode()) > MAX_QUESTION_BYTES:
            return None
        whole = describe_request(job, collections.names, collections.index_version)
        scope = scope_key(whole._replace(messages=_without_question(job)))
        return Question(
            text,
            key,
            scope,
            rule.min_similarity,
            rule.max_age_ms,
            rule.allow_hits,
            has_passages=bool(collections.names),
        )

    async def serve_hit(self, job: Job, delivery: Delivery, lease: Lease | None) -> bool:
        """Before generating: deliver a similar answer, where request and tenant take one; whether one went out."""
        question = job.question
        if question is None:
            return False
        if job.decision.is_cache_first:
            return await self._serve(job, delivery, lease, DegradedReason.DEGRADED_REASON_CACHE_POLICY)
        if not (question.allow_hits and job.request.cache.allow_similar):
            return False
        return await self._serve(job, delivery, lease, DegradedReason.DEGRADED_REASON_UNSPECIFIED)

    async def serve_degraded(
        self, job: Job, delivery: Delivery, lease: Lease | None, error: MeshError | None = None
    ) -> bool:
        """Level 1 of the ladder, where no node of the tier is left; whether an answer went out.

        `error`: why there is no node at all.
        """
        if error is not None and error.reason not in _NO_NODE:
            return False
        reason = (
            DegradedReason.DEGRADED_REASON_NODES_FAILED
            if job.failed
            else DegradedReason.DEGRADED_REASON_NODES_UNAVAILABLE
        )
        return await self._serve(job, delivery, lease, reason)

    async def remember(self, job: Job) -> None:
        """Make the stored answer of a job findable. Nobody waits for it; a failure is counted."""
        question = job.question
        if question is None:
            return
        if self._remembering >= _MAX_REMEMBERING:
            self._metrics.similar_kept.labels("busy").inc()
            return
        self._remembering += 1
        try:
            is_kept = await self._put(job, question)
        except (Unavailable, MeshError):
            self._metrics.similar_kept.labels("failed").inc()
        else:
            self._metrics.similar_kept.labels("kept" if is_kept else "unfit").inc()
        finally:
            self._remembering -= 1

    async def _serve(self, job: Job, delivery: Delivery, lease: Lease | None, reason: DegradedReason.ValueType) -> bool:
        question = job.question
        is_refused = job.max_degraded_level < SIMILAR_LEVEL
        if question is None or question.is_asked or is_refused or delivery.is_open:
            return False
        question.is_asked = True
        started_ms = job.elapsed_ms()
        found, outcome = await self._find(job, question)
        passages = self._citations.known(found.cache_key) if found is not None else None
        if found is not None and question.has_passages and passages is None:
            # Its fields may cite passages that can't be named.
            found, outcome = None, "uncited"
        self._metrics.similar.labels(outcome).inc()
        job.mark("similar", outcome)
        job.admission_ms += job.elapsed_ms() - started_ms
        if found is None:
            if outcome in {"unavailable", "late"} and "similar" not in job.unavailable:
                job.unavailable.append("similar")
                self._metrics.unavailable.labels("similar").inc()
            return False
        if lease is not None:
            # Whoever follows asked exactly this, and generates it.
            lease.give_up("similar")
        job.take_similar(reason)
        job.passages = passages or []
        await delivery.replay(found.answer, similarity=found.similarity)
        return True

    async def _find(self, job: Job, question: Question) -> tuple[FindSimilarResponse | None, str]:
        budget_s = min(self._settings.similar_timeout_ms / 1000, job.remaining_s())
        ends_s = time.monotonic() + budget_s
        try:
            embedder, vector = await self._embed(job, question, lambda: ends_s - time.monotonic(), is_urgent=True)
            request = FindSimilarRequest(
                scope_key=question.scope_key,
                text=question.text,
                vector=vector,
                embedder=embedder,
                max_age_ms=_least(job.request.cache.max_age_ms, question.max_age_ms),
                min_similarity=question.min_similarity,
            )
            message = await _require(self._sources.index).unary(
                _FIND,
                request.SerializeToString(),
                timeout_s=max(0.001, ends_s - time.monotonic()),
                metadata=job.inner_metadata,
            )
        except (Unavailable, MeshError):
            return None, "late" if time.monotonic() >= ends_s else "unavailable"
        response = FindSimilarResponse.FromString(message)
        return (response, "found") if response.HasField("answer") else (None, "none")

    async def _put(self, job: Job, question: Question) -> bool:
        ends_s = time.monotonic() + self._settings.settle_timeout_ms / 1000
        embedder, vector = await self._embed(job, question, lambda: ends_s - time.monotonic(), is_urgent=False)
        request = PutSimilarRequest(
            scope_key=question.scope_key,
            cache_key=question.cache_key,
            text=question.text,
            vector=vector,
            embedder=embedder,
        )
        message = await _require(self._sources.index).unary(
            _PUT,
            request.SerializeToString(),
            timeout_s=max(0.001, ends_s - time.monotonic()),
            metadata=job.inner_metadata,
        )
        return PutSimilarResponse.FromString(message).is_kept

    async def _embed(
        self, job: Job, question: Question, left_s: Callable[[], float], *, is_urgent: bool
    ) -> tuple[str, bytes]:
        """Tag of the embedder and the vector. Raises Unavailable and MeshError."""
        request = EmbedRequest(texts=[question.text], is_urgent=is_urgent)
        message = await _require(self._sources.embedder).unary(
            _EMBED, request.SerializeToString(), timeout_s=max(0.001, left_s()), metadata=job.inner_metadata
        )
        response = EmbedResponse.FromString(message)
        if len(response.vectors) != 1:
            raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "the embedder gave no vector")
        return response.embedder, response.vectors[0]


def _require(dependency: Dependency | None) -> Dependency:
    if dependency is None:
        raise Unavailable("similar")
    return dependency


def _least(first_ms: int, second_ms: int) -> int:
    """The smaller of two limits, of which 0 is none."""
    return min(first_ms, second_ms) if first_ms and second_ms else first_ms or second_ms


def _without_question(job: Job) -> tuple[bytes, ...]:
    """The messages, the texts of the last one of the user taken out; everything else in it stays."""
    messages = list(job.request.prompt.messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == Role.ROLE_USER:
            rest = Message()
            rest.CopyFrom(messages[index])
            for part in rest.parts:
                if part.WhichOneof("part") == "text":
                    part.text = ""
            messages[index] = rest
            break
    return tuple(message.SerializeToString(deterministic=True) for message in messages)
