"""What the end of a request leaves behind: numbers, a line of the log and of the decision log, its trace."""

import logging
from dataclasses import dataclass

from ssop.v1.frame_pb2 import Verdict
from ssop.v1.mesh_pb2 import CacheReason, CascadeReason, NodeReason, RetrievalReason, Tier, TierReason
from ssop_chassis.logs import note
from ssop_router.core.cascade import Judgement
from ssop_router.footprint import describe_reasons
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.recorder import Recorder
from ssop_router.traces import Traces
from ssop_router.traffic import Traffic
from ssop_router.trials import Trials

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reports:
    """Everybody who wants to hear of requests."""

    metrics: RouterMetrics
    recorder: Recorder
    traces: Traces
    traffic: Traffic
    trials: Trials

    def begin(self, job: Job) -> None:
        """A request was accepted."""
        self.traces.open(job)

    def end(self, job: Job, outcome: str) -> None:
        """A request has ended: `OK`, or the reason of its error."""
        metrics = self.metrics
        metrics.requests.labels(outcome).inc()
        metrics.cache_outcomes_of[job.cache_reason].inc()
        metrics.retrievals_of[job.retrieval_reason].inc()
        if job.cascade is not None:
            metrics.cascades.labels(_whose(job, job.cascade), CascadeReason.Name(job.cascade_reason)).inc()
        level = job.degraded_level
        if level:
            metrics.degraded.labels(str(level)).inc()
        self.recorder.record(job, outcome)
        self.traces.end(job, outcome)
        self.traffic.record(job, outcome)
        self.trials.end(job)
        target, decision = job.target, job.decision
        note(
            _log,
            "request",
            {
                "request_id": job.request_id,
                "tenant": job.tenant,
                "outcome": outcome,
                "tier": Tier.Name(decision.tier),
                "tier_reason": TierReason.Name(decision.tier_reason),
                **describe_reasons(decision),
                "node": target.candidate.node if target is not None else "",
                "node_reason": NodeReason.Name(target.node_reason) if target is not None else "",
                "cache_reason": CacheReason.Name(job.cache_reason),
                "retrieval_reason": RetrievalReason.Name(job.retrieval_reason),
                "degraded_level": level,
                "failed_attempts": len(job.failed),
                "continuations": len(job.continuations),
                "unavailable": tuple(job.unavailable),
                "cascade_reason": CascadeReason.Name(job.cascade_reason),
                "cascade_confidence": job.cascade.confidence if job.cascade is not None else None,
                "verdict": Verdict.Name(job.ending.verdict),
                "frames_sent": job.sends.frames,
                "admission_ms": job.admission_ms,
                "retrieval_wait_ms": job.retrieval_wait_ms,
                "rag_overlap_ms": job.rag_overlap_ms,
                "prefetches": job.intake.prefetches.started,
                "prefetch_hits": job.prefetch_hits,
                "first_field_ms": job.first_field_ms,
                "total_ms": job.elapsed_ms(),
                **({"explanation": job.explanation} if job.request.debug else {}),
            },
        )


def _whose(job: Job, judgement: Judgement) -> str:
    """Whose answer a cascade delivered."""
    if job.canned_reason or not job.first_field_ms:
        return "none"
    if job.degraded_level:
        return "fallback"
    return "kept" if judgement.is_kept else "escalated"
