"""The twin of `_messages.pyx`, for where that is not built, and what it is held to: protobuf does the work."""

from ssop.v1.content_pb2 import Prompt
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop.v1.mesh_pb2 import Accounting, Decision, Usage


def write_request(request_id: str, model: str, prompt: bytes) -> bytes:
    """An InferenceServiceGenerateRequest with the bytes of a Prompt."""
    return InferenceServiceGenerateRequest(
        request_id=request_id, model=model, prompt=Prompt.FromString(prompt)
    ).SerializeToString()


def write_decision(  # noqa: PLR0917 - the fields of the message
    shared: bytes,
    request_id: str,
    complexity: float | None,
    decision_us: int,
    score: float | None,
    score_spread: float,
    threshold: float,
    cascade_confidence: float | None,
) -> bytes:
    """The bytes of a Decision whose other fields are in `shared`. Raises ValueError or OverflowError for numbers that
    it does not hold.
    """
    own = Decision(
        request_id=request_id,
        complexity=complexity,
        decision_us=decision_us,
        score=score,
        score_spread=score_spread,
        threshold=threshold,
        cascade_confidence=cascade_confidence,
    )
    # Bytes of two messages put together are those of one that holds what both hold.
    return shared + own.SerializeToString()


def write_accounting(  # noqa: PLR0917 - the fields of the message
    usage: bytes,
    is_billed: bool,
    admission_ms: int,
    retrieval_wait_ms: int,
    first_field_ms: int,
    total_ms: int,
    rag_overlap_ms: int,
    prefetch_hits: int,
    prefetch_wasted: int,
    frames_sent: int,
    failed_attempts: int,
    discarded_usage: bytes | None,
    continuations: int,
    prefetches: int,
    prefetch_tokens: int,
) -> bytes:
    """The bytes of an Accounting with those of Usages. Raises ValueError or OverflowError as `write_decision`."""
    return Accounting(
        usage=Usage.FromString(usage),
        is_billed=is_billed,
        admission_ms=admission_ms,
        retrieval_wait_ms=retrieval_wait_ms,
        first_field_ms=first_field_ms,
        total_ms=total_ms,
        rag_overlap_ms=rag_overlap_ms,
        prefetch_hits=prefetch_hits,
        prefetch_wasted=prefetch_wasted,
        frames_sent=frames_sent,
        failed_attempts=failed_attempts,
        discarded_usage=Usage.FromString(discarded_usage) if discarded_usage is not None else None,
        continuations=continuations,
        prefetches=prefetches,
        prefetch_tokens=prefetch_tokens,
    ).SerializeToString()
