def write_request(request_id: str, model: str, prompt: bytes) -> bytes: ...
def write_decision(
    shared: bytes,
    request_id: str,
    complexity: float | None,
    decision_us: int,
    score: float | None,
    score_spread: float,
    threshold: float,
    cascade_confidence: float | None,
) -> bytes: ...
def write_accounting(
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
) -> bytes: ...
