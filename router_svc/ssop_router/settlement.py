# cython: annotation_typing=False
"""What a request ended as: what it is charged and counted as, and the error that its verdict calls for.

`settlement.pxd` gives the types with which this very file is compiled.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import IncompleteReason, Verdict
from ssop.v1.mesh_pb2 import CacheReason, Tier, Usage
from ssop.v1.usage_pb2 import RequestCounts
from ssop_chassis.errors import MeshError
from ssop_router.core.ladder import interrupt
from ssop_router.job import Job

R = ErrorReason
_OK: Final = Verdict.VERDICT_OK
_NO_TIER: Final = Tier.TIER_UNSPECIFIED
_MOST_TOKENS: Final = 2**32 - 1
"""What a Usage holds."""
_FROM_CACHE: Final = (CacheReason.CACHE_REASON_HIT, CacheReason.CACHE_REASON_FOLLOWER)


class Counts(NamedTuple):
    """What a request is counted as: the tier that generated, and a RequestCounts as bytes."""

    tier: Tier.ValueType
    message: bytes


def charge(job: Job, is_generated: bool) -> Usage:
    """What the request is charged: nothing for replays, nor for what a failure of the mesh cut short."""
    if job.is_similar:
        # What lite generated for a cascade before is owed all the same.
        return _add(Usage(), job.discarded_usage)
    if not is_generated:
        return Usage()
    if job.ending.has_ended:
        return _add(job.ending.usage, job.discarded_usage)
    is_cut_by_caller = job.first_field_ms and not job.is_interrupted
    return _add(job.estimate_usage(), job.discarded_usage) if is_cut_by_caller else Usage()


def count(job: Job, is_generated: bool) -> Counts:
    """What the request is counted as."""
    # An answer that reached its limit of tokens is incomplete, and no error.
    is_answered = job.ending.has_ended and _find_fault(job) is None
    tier = job.target.tier if is_generated and job.target is not None else _NO_TIER
    # Who followed in vain and generated after all was not served from the cache.
    is_cached = job.is_similar or (not is_generated and job.cache_reason in _FROM_CACHE)
    is_degraded = is_answered and job.degraded_level > 0
    plain = _count_plain(tier, not is_answered, is_cached, is_degraded)
    prefetches, discarded_usage = job.intake.prefetches, job.discarded_usage
    if not (prefetches.started or job.prefetch_hits or discarded_usage is not None):
        return plain
    more = RequestCounts(
        prefetches=prefetches.started,
        prefetch_hits=job.prefetch_hits,
        prefetch_tokens=prefetches.tokens,
        discarded_usage=discarded_usage,
    )
    # Messages one after the other are the message that has the fields of all.
    return Counts(tier, plain.message + more.SerializeToString())


@lru_cache(64)
def _count_plain(tier: Tier.ValueType, is_failed: bool, is_cached: bool, is_degraded: bool) -> Counts:
    """What nearly all requests are counted as, made once for each kind of them."""
    counts = RequestCounts(tier=tier, is_failed=is_failed, is_cached=is_cached, is_degraded=is_degraded)
    return Counts(tier, counts.SerializeToString())


def _add(usage: Usage, more: Usage | None) -> Usage:
    if more is None:
        return usage
    # Nodes say these: a sum that is no number of tokens is not to keep the request from settling.
    return Usage(
        input_tokens=min(_MOST_TOKENS, usage.input_tokens + more.input_tokens),
        output_tokens=min(_MOST_TOKENS, usage.output_tokens + more.output_tokens),
        cached_input_tokens=min(_MOST_TOKENS, usage.cached_input_tokens + more.cached_input_tokens),
    )


def deadline_error(job: Job) -> MeshError:
    """The deadline has passed; the error says where, and which frames are final."""
    metadata = {"stage": job.stage}
    if job.first_field_ms:
        metadata["last_seq"] = str(job.last_seq)
    return MeshError(R.ERROR_REASON_DEADLINE_EXCEEDED, f"the deadline passed during {job.stage}", metadata=metadata)


def judge(job: Job) -> None:
    """Raise the error that the verdict of a delivered answer calls for."""
    if (fault := _find_fault(job)) is not None:
        raise fault


def _find_fault(job: Job) -> MeshError | None:
    ending = job.ending
    if ending.verdict == _OK:
        return None
    if ending.verdict == Verdict.VERDICT_INVALID:
        violation = ending.violation
        return MeshError(
            R.ERROR_REASON_OUTPUT_INVALID,
            f"the answer broke the rule '{violation.rule}'",
            metadata={
                "pointer": violation.pointer,
                "rule": violation.rule,
                "offset_bytes": str(violation.offset_bytes),
            },
        )
    if ending.verdict != Verdict.VERDICT_INCOMPLETE:
        return None
    if ending.incomplete_reason == IncompleteReason.INCOMPLETE_REASON_DEADLINE:
        return deadline_error(job)
    if ending.incomplete_reason in (
        IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED,
        IncompleteReason.INCOMPLETE_REASON_CANCELLED,
    ):
        cut = MeshError(R.ERROR_REASON_BACKEND_FAILED, "the node cut the answer")
        return interrupt(cut, job.last_seq)
    return None
