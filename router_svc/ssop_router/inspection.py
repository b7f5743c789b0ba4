"""What the router says about itself and about requests that are not run: schemas, decisions, models, status."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from ssop.v1.cache_admin_pb2 import CacheStats
from ssop.v1.cache_pb2 import ReadStatsResponse
from ssop.v1.frame_pb2 import Frame, Header
from ssop.v1.inference_pb2 import CheckConstraintRequest, CheckConstraintResponse, ModelState
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, RetrievalReason, Tier
from ssop.v1.router_pb2 import (
    CapUse,
    CheckSchemaRequest,
    CheckSchemaResponse,
    DecisionScore,
    DependencyView,
    ExplainDecisionResponse,
    GetMeshStatusResponse,
    ListModelsResponse,
    ModelInfo,
    NodeVerdict,
    NodeView,
    RuleView,
    ScorePart,
)
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_codec import Encoder, Limits, Schema
from ssop_router.answers import Answers, make_key
from ssop_router.cache_admin import READ_STATS
from ssop_router.core.cascade import describe
from ssop_router.core.decision import is_cacheable
from ssop_router.core.frames import parse_frame, split_frames
from ssop_router.core.ladder import Target
from ssop_router.core.membership import STATIC
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.score import Score
from ssop_router.delivery import describe_decision, gather
from ssop_router.dependency import Dependency, InnerMetadata, Unavailable
from ssop_router.discovery import Discovery
from ssop_router.job import Intake, Job
from ssop_router.limits import Limits as RateLimits
from ssop_router.nodes import Node, Nodes
from ssop_router.pipeline import Pipeline
from ssop_router.preparation import Preparation
from ssop_router.receipts import Receipts
from ssop_router.retrieval import Collections, Retrieval
from ssop_router.settings import RouterSettings
from ssop_router.traffic import Traffic
from ssop_router.trials import Trials
from ssop_router.validation import MAX_BUFFER_BYTES

_CHECK: Final = "/ssop.v1.InferenceService/CheckConstraint"
_CHECK_TIMEOUT_S: Final = 2.0
_MAX_CHECKS: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Inspection:
    """The read-only side of the router. `clock_ms` is monotonic."""

    preparation: Preparation
    pipeline: Pipeline
    answers: Answers
    retrieval: Retrieval
    nodes: Nodes
    discovery: Discovery | None
    receipts: Receipts
    limits: RateLimits
    levels: Dependency | None
    sign_own: Callable[[], InnerMetadata]
    traffic: Traffic
    trials: Trials
    dependencies: Sequence[Dependency]
    settings: RouterSettings
    clock_ms: Callable[[], int]
    started_ms: int

    async def check_schema(self, request: CheckSchemaRequest, metadata: InnerMetadata) -> CheckSchemaResponse:
        """Compile a schema, and ask every node how it would hold each of its models to it. Raises SCHEMA_REFUSED."""
        schema = self.preparation.schemas.compile(request.output_schema)
        caps = [
            CapUse(cap=f"max_{name}", used=used, limit=getattr(Limits(), f"max_{name}", 0))
            for name, used in schema.caps.items()
        ]
        source = request.output_schema
        pairs = [
            (node, model.name)
            for node in self.nodes
            for model in node.view().models
            if model.state == ModelState.MODEL_STATE_READY
        ]
        checks = [
            self._check(node, CheckConstraintRequest(output_schema=source, model=model), metadata)
            for node, model in pairs[:_MAX_CHECKS]
        ]
        return CheckSchemaResponse(
            header=_header(schema, request.stream_buffer_size), caps=caps, backends=await asyncio.gather(*checks)
        )

    async def explain(self, intake: Intake) -> ExplainDecisionResponse:
        """Decide about a request without running it; the cache is looked into, nothing is admitted or charged."""
        job = self.preparation.prepare(intake)
        explanation, _, score = self.preparation.explain(job.features, job.decision)
        lines = list(explanation.lines)
        if job.features.policy.is_cascade:
            lines.append(describe(self.settings.cascade()))
        collections = await self._explain_retrieval(job, lines)
        await self._explain_cache(job, collections, lines)
        candidate = job.decision.candidate
        target = None
        if candidate is not None and job.cache_reason != CacheReason.CACHE_REASON_HIT:
            target = Target(candidate, job.decision.tier, job.decision.node_reason)
        decision = describe_decision(gather(job)._replace(target=target))
        if target is None:
            decision.node_reason = NodeReason.NODE_REASON_UNSPECIFIED
        return ExplainDecisionResponse(
            decision=decision,
            explanation=lines,
            score=_score_view(score) if score is not None else None,
            rules=[
                RuleView(name=rule.name, tier=rule.tier, is_speaking=rule.is_speaking) for rule in explanation.rules
            ],
            verdicts=[
                NodeVerdict(
                    address=verdict.address,
                    node=verdict.node,
                    tier=verdict.tier,
                    model=verdict.model,
                    filter=verdict.fault,
                    load=verdict.load,
                    success=verdict.success,
                    status_age_ms=verdict.status_age_ms,
                )
                for verdict in explanation.verdicts
            ],
            classifier=self.preparation.scorer.version,
        )

    def list_models(self, principal: Principal) -> ListModelsResponse:
        """The model names that a key may use."""
        contexts: dict[int, int] = {}
        for node in self.nodes:
            for model in node.view().models:
                for tier in model.tiers:
                    contexts[tier] = max(contexts.get(tier, 0), model.context_tokens)
        models = []
        for name, word in sorted(self.settings.models.items()):
            tier = next((t for t, w in WORD_OF_TIER.items() if w == word), Tier.TIER_UNSPECIFIED)
            allowed = [t for t, w in WORD_OF_TIER.items() if w in principal.scopes and tier in (t, 0)]
            if allowed:
                context = max(contexts.get(t, 0) for t in allowed)
                models.append(ModelInfo(model=name, tier=tier, context_tokens=context))
        return ListModelsResponse(models=models)

    async def mesh_status(self) -> GetMeshStatusResponse:
        """The nodes, what the router depends on, the cache's levels, and the three numbers of frames."""
        now_ms = self.clock_ms()
        nodes = []
        for node in self.nodes:
            view = node.view()
            sources, source_age_ms = ([STATIC], 0)
            if self.discovery is not None:
                sources, source_age_ms = self.discovery.origin(view.address)
            nodes.append(
                NodeView(
                    address=view.address,
                    status=node.status,
                    status_age_ms=view.age_ms(now_ms) or 0,
                    in_flight=view.in_flight,
                    is_ejected=view.is_ejected,
                    ejection_reason=view.ejection_reason,
                    sources=sources,
                    source_age_ms=source_age_ms,
                    is_leaving=node.is_leaving,
                )
            )
        return GetMeshStatusResponse(
            nodes=nodes,
            dependencies=[
                DependencyView(
                    name=dependency.name,
                    address=dependency.address,
                    is_available=dependency.is_available,
                    last_answer_age_ms=dependency.last_answer_age_ms,
                )
                for dependency in self.dependencies
            ],
            in_flight=self.pipeline.in_flight,
            uptime_ms=now_ms - self.started_ms,
            frames_sent=self.receipts.sent,
            frames_received=self.receipts.received,
            frames_verified=self.receipts.verified,
            traffic=self.traffic.view(),
            trials=self.trials.view(),
            node_sources=self.discovery.views() if self.discovery is not None else (),
            rate_limit=self.limits.view() if self.answers.is_configured else None,
            cache=await self._cache_stats(),
        )

    async def _cache_stats(self) -> CacheStats | None:
        if self.levels is None:
            return None
        timeout_s = self.settings.settle_timeout_ms / 1000
        try:
            message = await self.levels.unary(READ_STATS, b"", timeout_s=timeout_s, metadata=self.sign_own())
        except (Unavailable, MeshError):
            # Its absence says so, and `dependencies` since when.
            return None
        return ReadStatsResponse.FromString(message).stats

    async def _check(
        self, node: Node, request: CheckConstraintRequest, metadata: InnerMetadata
    ) -> CheckConstraintResponse:
        try:
            response = await node.peer.unary(
                _CHECK, request.SerializeToString(), timeout_s=_CHECK_TIMEOUT_S, metadata=metadata
            )
        except MeshError as error:
            # The mode stays UNSPECIFIED, which no node says of a schema, and the reason is told.
            return CheckConstraintResponse(model=request.model, detail=f"the node does not say: {error.reason_name}")
        return CheckConstraintResponse.FromString(response)

    async def _explain_retrieval(self, job: Job, lines: list[str]) -> Collections:
        if job.retrieval_reason != RetrievalReason.RETRIEVAL_REASON_UNSPECIFIED:
            return Collections()
        try:
            found = await self.retrieval.find_collections(
                job.tenant,
                job.request.retrieval.collections,
                job.inner_metadata,
                self.retrieval.timeout_s(job.remaining_s()),
            )
        except Unavailable:
            job.unavailable.append("rag")
            job.retrieval_reason = RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
            lines.append("retrieval: the service does not answer")
            return Collections()
        if not found.names:
            job.retrieval_reason = RetrievalReason.RETRIEVAL_REASON_NO_COLLECTION
        lines.append(f"retrieval: {len(found.names)} collections would be searched")
        return found

    async def _explain_cache(self, job: Job, collections: Collections, lines: list[str]) -> None:
        if not is_cacheable(job.features) or job.unavailable:
            return
        try:
            is_hit = await self.answers.look_up(job, make_key(job, collections.names, collections.index_version))
        except (Unavailable, MeshError):
            job.cache_reason = CacheReason.CACHE_REASON_UNAVAILABLE
            lines.append("cache: the service does not answer")
            return
        if self.answers.is_configured:
            job.cache_reason = CacheReason.CACHE_REASON_HIT if is_hit else CacheReason.CACHE_REASON_MISS
            lines.append("cache: an answer is stored" if is_hit else "cache: no answer is stored")


def _score_view(score: Score) -> DecisionScore:
    parts = [ScorePart(**part._asdict()) for part in score.parts]
    return DecisionScore(value=score.value, spread=score.spread, threshold=score.threshold, parts=parts)


def _header(schema: Schema, buffer_bytes: int) -> Header:
    """The header of a document of the schema, its pieces joined."""
    header = Header()
    # A large buffer, so that no key is too long for a frame; the answer names the one that was asked for.
    encoder = Encoder(schema, stream_buffer_bytes=MAX_BUFFER_BYTES)
    for chunk in encoder.drain(flush=True):
        for piece in split_frames(chunk):
            frame: Frame = parse_frame(piece)
            if frame.HasField("header"):
                header.MergeFrom(frame.header)
    header.stream_buffer_size = buffer_bytes or schema.auto_buffer_bytes
    return header
