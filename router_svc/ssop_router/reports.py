# cython: annotation_typing=False
"""What the end of a request leaves behind: numbers, a line of the log and of the decision log, its trace.

`reports.pxd` gives the types with which this very file is compiled.
"""

import logging
from functools import lru_cache
from typing import Final

from ssop.v1.frame_pb2 import Verdict
from ssop.v1.mesh_pb2 import CacheReason, CascadeReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.logs import encode_members, note
from ssop_router.core.cascade import Judgement
from ssop_router.footprint import describe_reasons
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.recorder import Recorder
from ssop_router.traces import Traces
from ssop_router.traffic import Traffic
from ssop_router.trials import Trials

_log = logging.getLogger(__name__)
_INFO: Final = logging.INFO
_NO_CONFIDENCE: Final = '"cascade_confidence":null'
_NO_CASCADE: Final = CascadeReason.CASCADE_REASON_UNSPECIFIED


class Reports:
    """Everybody who wants to hear of requests."""

    def __init__(
        self, metrics: RouterMetrics, recorder: Recorder, traces: Traces, traffic: Traffic, trials: Trials
    ) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self.traces = traces
        self._traffic = traffic
        self._trials = trials

    def begin(self, job: Job) -> None:
        """A request was accepted."""
        self.traces.open(job)

    def end(self, job: Job, outcome: str) -> None:
        """A request has ended: `OK`, or the reason of its error."""
        metrics, cascade, cascade_reason = self._metrics, job.cascade, _NO_CASCADE
        for count in metrics.ends_of[outcome, job.cache_reason, job.retrieval_reason]:
            count.inc()
        if cascade is not None:
            cascade_reason = job.cascade_reason
            metrics.cascades.labels(_whose(job, cascade), CascadeReason.Name(cascade_reason)).inc()
        level = job.degraded_level
        if level:
            metrics.degraded.labels(str(level)).inc()
        if job.record is not None:
            self._recorder.record(job, outcome)
        self.traces.end(job, outcome)
        self._traffic.record(job, outcome)
        self._trials.end(job)
        if _log.isEnabledFor(_INFO):
            note(_log, "request", _describe(job, outcome, cascade_reason, level))


def _whose(job: Job, judgement: Judgement) -> str:
    """Whose answer a cascade delivered."""
    if job.canned_reason or not job.first_field_ms:
        return "none"
    if job.degraded_level:
        return "fallback"
    return "kept" if judgement.is_kept else "escalated"


def _describe(job: Job, outcome: str, cascade_reason: CascadeReason.ValueType, level: int) -> str:
    """What the line of a request says, as members of a JSON object. What recurs is encoded once."""
    decision, target, cascade = job.decision, job.target, job.cascade
    whose = encode_members({"request_id": job.request_id, "tenant": job.tenant})
    choice = _describe_choice(outcome, decision.tier, decision.tier_reason)
    reasons = describe_reasons(decision)
    service = _describe_service(
        target.candidate.node if target is not None else "",
        target.node_reason if target is not None else None,
        job.cache_reason,
        job.retrieval_reason,
        level,
        len(job.failed),
        len(job.continuations),
        tuple(job.unavailable),
        cascade_reason,
    )
    judgement = encode_members({"cascade_confidence": cascade.confidence}) if cascade is not None else _NO_CONFIDENCE
    numbers = _describe_numbers(
        job.sends.frames,
        job.admission_ms,
        job.retrieval_wait_ms,
        job.rag_overlap_ms,
        job.intake.prefetches.started,
        job.prefetch_hits,
        job.first_field_ms,
        job.elapsed_ms(),
    )
    parts = [whose, choice, service, judgement, f'"verdict":"{Verdict.Name(job.reading.ending.verdict)}"', numbers]
    if reasons:
        parts.insert(2, encode_members(reasons))
    if explanation := job.explanation:
        parts.append(encode_members({"explanation": explanation}))
    return ",".join(parts)


def _describe_numbers(  # noqa: PLR0917 - by place alone
    frames_sent: int,
    admission_ms: int,
    retrieval_wait_ms: int,
    rag_overlap_ms: int,
    prefetches: int,
    prefetch_hits: int,
    first_field_ms: int,
    total_ms: int,
) -> str:
    return (
        f'"frames_sent":{frames_sent},"admission_ms":{admission_ms},"retrieval_wait_ms":{retrieval_wait_ms}'
        f',"rag_overlap_ms":{rag_overlap_ms},"prefetches":{prefetches},"prefetch_hits":{prefetch_hits}'
        f',"first_field_ms":{first_field_ms},"total_ms":{total_ms}'
    )


@lru_cache(1_024)
def _describe_choice(outcome: str, tier: Tier.ValueType, reason: TierReason.ValueType) -> str:
    return encode_members({"outcome": outcome, "tier": Tier.Name(tier), "tier_reason": TierReason.Name(reason)})


@lru_cache(1_024)
def _describe_service(  # noqa: PLR0917 - remembered by all of them
    node: str,
    node_reason: NodeReason.ValueType | None,
    cache_reason: CacheReason.ValueType,
    retrieval_reason: RetrievalReason.ValueType,
    level: int,
    failed_attempts: int,
    continuations: int,
    unavailable: tuple[str, ...],
    cascade_reason: CascadeReason.ValueType,
) -> str:
    return encode_members(
        {
            "node": node,
            "node_reason": NodeReason.Name(node_reason) if node_reason is not None else "",
            "cache_reason": CacheReason.Name(cache_reason),
            "retrieval_reason": RetrievalReason.Name(retrieval_reason),
            "degraded_level": level,
            "failed_attempts": failed_attempts,
            "continuations": continuations,
            "unavailable": unavailable,
            "cascade_reason": CascadeReason.Name(cascade_reason),
        }
    )
