# cython: annotation_typing=False
"""Writes one delivery: decision, status, document frames, accounting; and counts what goes out.

`delivery.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Awaitable
from functools import lru_cache
from time import monotonic
from typing import Final, NamedTuple

from ssop.v1.cache_pb2 import StoredAnswer
from ssop.v1.frame_pb2 import Frame, FrameKind
from ssop.v1.mesh_pb2 import (
    CacheReason,
    CascadeReason,
    ConstraintMode,
    Decision,
    DegradedReason,
    DeliveryState,
    DeliveryStatus,
    NodeReason,
    RetrievalReason,
    Tier,
    TierReason,
)
from ssop_codec import bodies, mesh_chunk, survey
from ssop_router.core.decision import Decision as Made
from ssop_router.core.frames import END_BIT, pack_frames, split_frames
from ssop_router.core.ladder import Target
from ssop_router.core.messages import write_accounting, write_decision
from ssop_router.core.tuples import make
from ssop_router.job import Ending, Job, Reading
from ssop_router.metrics import RouterMetrics
from ssop_router.outlet import Outlet, finish

FIELD_KINDS = frozenset({FrameKind.FRAME_KIND_VALUE, FrameKind.FRAME_KIND_PART, FrameKind.FRAME_KIND_CLOSE})
_DECISION: Final = FrameKind.FRAME_KIND_DECISION
_STATUS: Final = FrameKind.FRAME_KIND_STATUS
_ACCOUNTING: Final = FrameKind.FRAME_KIND_ACCOUNTING
_END: Final = FrameKind.FRAME_KIND_END
_NO_TIER: Final = Tier.TIER_UNSPECIFIED
_NO_TIER_REASON: Final = TierReason.TIER_REASON_UNSPECIFIED
_NO_NODE_REASON: Final = NodeReason.NODE_REASON_UNSPECIFIED
_NO_CASCADE: Final = CascadeReason.CASCADE_REASON_UNSPECIFIED
_NOWHERE: Final = ("", "")
# What an engine can't do is said for each field of a caller's schema.
_MOST_REMEMBERED_LIMITS: Final = 64
_MOST_REMEMBERED_CHARS: Final = 1_024


class Delivery:
    """The frames of one request on their way to an outlet."""

    def __init__(self, job: Job, outlet: Outlet, metrics: RouterMetrics) -> None:
        self._job = job
        self.outlet = outlet
        self._put = outlet.put
        self._sends = job.sends
        self._chunk_bytes = job.chunk_bytes
        self._metrics = metrics
        self.is_open = False
        self.is_closed = False
        self._writing: asyncio.Task[None] | None = None

    def open(
        self,
        first: bytes,
        frames: int,
        is_last: bool = False,
        stored: StoredAnswer | None = None,
        similarity: float = 0.0,
    ) -> Awaitable[None] | None:
        """Send decision and status, and the first `frames` document frames with them where they fit one chunk.

        `stored`: what is replayed, where no node generates. What is returned is awaited before more is sent.
        """
        self.is_open = True
        head = mesh_chunk(_DECISION, pack_decision(gather(self._job))) + self._status(stored, similarity)
        if len(head) + len(first) <= self._chunk_bytes:
            return self.forward(head + first, frames, is_last=is_last)
        return self._forward_apart(head, first, is_last=is_last)

    def forward(self, chunk: bytes, frames: int, is_last: bool = False) -> Awaitable[None] | None:
        """Send chunk bytes as they are; `frames` of them are document frames.

        After the last ones the accounting goes along, since every message costs as much as its bytes. What is returned
        is awaited before more is sent.
        """
        if is_last:
            tail = self._accounting(frames)
            self.is_closed = len(chunk) + len(tail) <= self._chunk_bytes
            if self.is_closed:
                chunk += tail
        sends = self._sends
        if sends.is_noting:
            found = survey(chunk)
            at_us = int((monotonic() - self._job.started_s) * 1_000_000)
            sends.note(at_us, len(chunk), found.frames, found.heads)
        pending = self._put(chunk, frames)
        if frames:
            # They are the transport's, whatever becomes of the wait for it.
            sends.count(frames, len(chunk))
        return pending

    def forward_all(self, chunk: bytes) -> Awaitable[None] | None:
        """Send chunk bytes in chunks no larger than the request takes. What is returned is awaited as for `forward`."""
        if len(chunk) <= self._chunk_bytes:
            return self.forward(chunk, count_frames(chunk))
        return self._forward_apart(b"", chunk, is_last=False)

    def go_on(self, first: bytes, *, is_last: bool) -> Awaitable[None]:
        """Say in the middle of the answer that another node goes on with it, and send its first frames."""
        self._job.mark("continued")
        self._metrics.continuations.labels("taken").inc()
        return self._forward_apart(self._status(None), first, is_last=is_last)

    def _forward_apart(self, head: bytes, rest: bytes, *, is_last: bool) -> Awaitable[None]:
        """Send mesh frames, and then the others in chunks no larger than the request takes.

        It goes on where the wait for it is cut, which lasts no longer than the stream that they were read from.
        """
        self._writing = asyncio.get_running_loop().create_task(self._write_apart(head, rest, is_last=is_last))
        return asyncio.shield(self._writing)

    async def _write_apart(self, head: bytes, rest: bytes, *, is_last: bool) -> None:
        if head:
            await finish(self.forward(head, 0))
        pieces = list(pack_frames(split_frames(rest), self._chunk_bytes))
        for index, piece in enumerate(pieces, start=1):
            await finish(self.forward(piece, count_frames(piece), is_last=is_last and index == len(pieces)))

    async def catch_up(self) -> None:
        """Wait for pieces that nobody waits for any more. Raises what the outlet raises."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None

    def abandon(self) -> None:
        """The request is over: pieces that are not handed over are not sent."""
        if self._writing is not None:
            self._writing.cancel()

    def mark_first_field(self) -> None:
        """The first field is about to leave."""
        job = self._job
        job.first_field_ms = job.elapsed_ms()
        job.mark("first_field")
        self._metrics.first_field_of[job.decision.tier].observe(job.first_field_ms / 1000)

    async def replay(self, answer: StoredAnswer, *, similarity: float = 0.0) -> None:
        """Send stored document frames, in chunks no larger than the request takes.

        `similarity`: of the question that they answered, where it was another one.
        """
        self.mark_first_field()
        frames = self.take_document(answer.chunk)
        await finish(self.open(answer.chunk, frames, is_last=True, stored=answer, similarity=similarity))

    async def serve_canned(self, chunk: bytes) -> None:
        """Send a document that stood ready, instead of one that a node generates."""
        self.mark_first_field()
        self._job.reading = Reading()
        frames = self.take_document(chunk)
        await finish(self.open(chunk, frames, is_last=True))

    def take_document(self, chunk: bytes) -> int:
        """Read the ends in chunk bytes of document frames, and where the sequence stands; returns their number."""
        found = survey(chunk)
        reading = self._job.reading
        reading.last_seq = max(reading.last_seq, found.last_seq)
        if found.kinds & END_BIT:
            take_ends(reading.ending, chunk)
        return found.documents

    async def close(self) -> None:
        """Send the accounting, the last frame of a delivery, unless it went along with the end."""
        await self.catch_up()
        if not self.is_closed:
            await finish(self.forward(self._accounting(0), 0))

    def _accounting(self, more_frames: int) -> bytes:
        job = self._job
        prefetches, discarded = job.intake.prefetches, job.discarded_usage
        accounting = write_accounting(
            job.reading.ending.usage.SerializeToString(),
            job.is_billed,
            job.admission_ms,
            job.retrieval_wait_ms,
            job.first_field_ms,
            job.elapsed_ms(),
            job.rag_overlap_ms,
            job.prefetch_hits,
            max(0, prefetches.started - job.prefetch_hits),
            self._sends.frames + more_frames,
            len(job.failed),
            discarded.SerializeToString() if discarded is not None else None,
            len(job.continuations),
            prefetches.started,
            prefetches.tokens,
        )
        return mesh_chunk(_ACCOUNTING, accounting)

    def _status(self, stored: StoredAnswer | None, similarity: float = 0.0) -> bytes:
        """The chunk of a STATUS frame."""
        job = self._job
        level, reason, reading = job.degraded_level, job.degraded_reason, job.reading
        if stored is None and not (similarity or job.unavailable or job.passages or job.continuations):
            limits = reading.engine_limits
            is_short = not limits or (
                len(limits) <= _MOST_REMEMBERED_LIMITS and sum(map(len, limits)) <= _MOST_REMEMBERED_CHARS
            )
            pack = _pack_plain_status if is_short else _pack_plain_status.__wrapped__
            return pack(level, reason, reading.constraint_mode, limits, job.served_by)
        status = describe_state(level, reason, reading.constraint_mode, reading.engine_limits, job.served_by)
        if stored is not None:
            status.is_cached = True
            status.age_ms = stored.age_ms
            status.cache_level = stored.level
        if similarity:
            status.similarity = similarity
        if job.unavailable:
            status.unavailable.extend(job.unavailable)
        if job.passages:
            status.passages.extend(passage.ref for passage in job.passages)
        if job.continuations:
            status.continuations.extend(job.continuations)
        return mesh_chunk(_STATUS, status.SerializeToString())


def describe_state(
    level: int,
    reason: DegradedReason.ValueType,
    constraint_mode: ConstraintMode.ValueType,
    engine_limits: tuple[str, ...],
    served_by: str,
) -> DeliveryStatus:
    """What a status says of each delivery: how degraded it is, and what serves it."""
    status = DeliveryStatus(
        state=DeliveryState.DELIVERY_STATE_DEGRADED if level else DeliveryState.DELIVERY_STATE_OK,
        constraint_mode=constraint_mode,
        served_by=served_by,
        engine_limits=engine_limits,
    )
    if level:
        status.degraded_level = level
        status.fallback_used = True
    if reason:
        status.degraded_reason = reason
    return status


@lru_cache(256)
def _pack_plain_status(
    level: int,
    reason: DegradedReason.ValueType,
    constraint_mode: ConstraintMode.ValueType,
    engine_limits: tuple[str, ...],
    served_by: str,
) -> bytes:
    """The chunk of a status that says no more: the same for nearly all answers of a node with a schema."""
    status = describe_state(level, reason, constraint_mode, engine_limits, served_by)
    return mesh_chunk(_STATUS, status.SerializeToString())


def take_ends(ending: Ending, chunk: bytes) -> None:
    """Read the END frames of a chunk. Raises FrameError and DecodeError."""
    for body in bodies(chunk, _END):
        ending.take(Frame.FromString(body).end)


def count_frames(chunk: bytes) -> int:
    """Document frames in chunk bytes."""
    return survey(chunk).documents


class DecisionFacts(NamedTuple):
    """What a Decision message says, without a text of the request. `target`: where it really went; None: to no node."""

    request_id: str
    decision: Made
    policy: str
    is_cascade: bool
    target: Target | None
    cache_reason: CacheReason.ValueType
    retrieval_reason: RetrievalReason.ValueType
    decision_us: int
    cascade_reason: CascadeReason.ValueType
    cascade_confidence: float | None


def gather(job: Job) -> DecisionFacts:
    """The facts as they are now."""
    policy, cascade = job.features.policy, job.cascade
    return make(
        DecisionFacts,
        (
            job.request_id,
            job.decision,
            policy.text,
            policy.is_cascade,
            job.target,
            job.cache_reason,
            job.retrieval_reason,
            job.decision_us,
            job.cascade_reason if cascade is not None else _NO_CASCADE,
            cascade.confidence if cascade is not None else None,
        ),
    )


def describe_decision(facts: DecisionFacts) -> Decision:
    """The DECISION frame's message."""
    return Decision.FromString(pack_decision(facts))


def pack_decision(facts: DecisionFacts) -> bytes:
    """The bytes of a DECISION frame's message: what many requests share is made once."""
    request_id, decision, policy, is_cascade, target, cache, retrieval, decision_us, cascade, confidence = facts
    # Of a cascade's stored answer, or another's, it is not known which tier it came from.
    has_tier = target is not None or not is_cascade
    candidate = target.candidate if target is not None else None
    rule, complexity, score = decision.rule, decision.complexity, decision.score
    shared = _pack_reasons(
        decision.tier if has_tier else _NO_TIER,
        decision.tier_reason if has_tier else _NO_TIER_REASON,
        target.node_reason if target is not None else _NO_NODE_REASON,
        candidate[1:3] if candidate is not None else _NOWHERE,
        candidate is not None and candidate.is_shared_model,
        candidate is not None and candidate.is_canary,
        cache,
        retrieval,
        cascade,
        policy,
        rule.name if rule is not None else "",
        decision.is_cache_first,
        decision.weak_signals,
        complexity.abstention if complexity is not None else "",
    )
    return write_decision(
        shared,
        request_id,
        complexity.score if complexity is not None else None,
        decision_us,
        score.value if score is not None else None,
        score.spread if score is not None else 0.0,
        score.threshold if score is not None else 0.0,
        confidence,
    )


@lru_cache(1_024)
def _pack_reasons(  # noqa: PLR0917 - remembered by all of them
    tier: Tier.ValueType,
    tier_reason: TierReason.ValueType,
    node_reason: NodeReason.ValueType,
    served_by: tuple[str, str],
    is_shared_model: bool,
    is_canary: bool,
    cache_reason: CacheReason.ValueType,
    retrieval_reason: RetrievalReason.ValueType,
    cascade_reason: CascadeReason.ValueType,
    policy: str,
    rule: str,
    is_cache_first: bool,
    weak_signals: tuple[str, ...],
    abstention: str,
) -> bytes:
    """What recurs, all of it words of the mesh. `served_by`: a node and its model."""
    node, model = served_by
    return Decision(
        tier=tier,
        tier_reason=tier_reason,
        node_reason=node_reason,
        node=node,
        model=model,
        is_shared_model=is_shared_model,
        is_canary=is_canary,
        cache_reason=cache_reason,
        retrieval_reason=retrieval_reason,
        cascade_reason=cascade_reason,
        policy=policy,
        rule=rule,
        is_cache_first=is_cache_first,
        weak_signals=weak_signals,
        abstention=abstention,
    ).SerializeToString()
