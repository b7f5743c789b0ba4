# cython: annotation_typing=False
"""A request while it runs: what it asks, what was decided, and what has happened so far.

`job.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

from ssop.v1.cache_pb2 import StoredAnswer
from ssop.v1.frame_pb2 import End, FinishReason, IncompleteReason, Verdict, Violation
from ssop.v1.inference_pb2 import Passage
from ssop.v1.mesh_pb2 import (
    CacheReason,
    CascadeReason,
    ConstraintMode,
    Continuation,
    DegradedReason,
    Usage,
)
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.identity import Principal
from ssop_codec import Schema
from ssop_router.core._relay import Sends
from ssop_router.core.cascade import Judgement
from ssop_router.core.decision import Decision, Features
from ssop_router.core.ladder import CANNED_LEVEL, SIMILAR_LEVEL, Target
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.prompt import PromptParts
from ssop_router.core.timeline import Timeline
from ssop_router.core.transcript import Transcript
from ssop_router.validation import MAX_DEGRADED_LEVEL

_BYTES_PER_TOKEN: Final = 4
# Never changed: what an end says takes their place.
_NO_VIOLATION: Final = Violation()
_NO_USAGE: Final = Usage()
# Looking a name up in an enum of protobuf costs as much as an object.
_NO_VERDICT: Final = Verdict.VERDICT_UNSPECIFIED
_OK: Final = Verdict.VERDICT_OK
_VERDICTS: Final = frozenset(Verdict.values())
_INCOMPLETE: Final = Verdict.VERDICT_INCOMPLETE
_NOT_INCOMPLETE: Final = IncompleteReason.INCOMPLETE_REASON_UNSPECIFIED
_NO_FINISH: Final = FinishReason.FINISH_REASON_UNSPECIFIED
_STOP: Final = FinishReason.FINISH_REASON_STOP
_NO_MODE: Final = ConstraintMode.CONSTRAINT_MODE_UNSPECIFIED
_NOT_DEGRADED: Final = DegradedReason.DEGRADED_REASON_UNSPECIFIED
_NO_CASCADE: Final = CascadeReason.CASCADE_REASON_UNSPECIFIED
_HIT: Final = CacheReason.CACHE_REASON_HIT


@dataclass(slots=True, eq=False)
class Prefetches:
    """The prefetches of one request: calls that were made, those that started one, and the tokens of these."""

    calls: int = 0
    in_flight: int = 0
    started: int = 0
    tokens: int = 0


NO_PREFETCHES: Final = Prefetches()
"""Never changed: of a request that came whole."""


class Intake:
    """A request as a transport hands it over; never changed. `timeout_s` is what is left of its deadline."""

    def __init__(
        self,
        request: GenerateRequest,
        principal: Principal,
        timeout_s: float,
        policy: str = "",
        prefetches: Prefetches = NO_PREFETCHES,
    ) -> None:
        self.request = request
        self.principal = principal
        self.timeout_s = timeout_s
        self.policy = policy
        self.prefetches = prefetches
        self.arrived_s = monotonic()


class Ending:
    """What the END frames said, the gravest verdict of all documents, and the last usage."""

    def __init__(self) -> None:
        self.verdict = _NO_VERDICT
        self.has_ended = False
        """At least one document has ended."""
        self.violation = _NO_VIOLATION
        self.incomplete_reason = _NOT_INCOMPLETE
        self.finish_reason = _NO_FINISH
        self.usage = _NO_USAGE

    @property
    def is_storable(self) -> bool:
        """The answer is whole and valid, and asks for nothing to be done."""
        return self.verdict == _OK and self.finish_reason in (_STOP, _NO_FINISH)

    def take(self, end: End) -> None:
        """An END frame."""
        if self.verdict in (_NO_VERDICT, _OK):
            verdict = end.verdict
            # Of what a newer node says nothing is known but that the answer is not simply whole.
            self.verdict = verdict if verdict in _VERDICTS else _INCOMPLETE
            self.has_ended = self.verdict != _NO_VERDICT
            self.finish_reason = end.finish_reason
            self.incomplete_reason = end.incomplete_reason
            self.violation = end.violation if end.HasField("violation") else _NO_VIOLATION
        self.usage = end.usage


class Reading:
    """What one node has said so far of the document that it writes."""

    def __init__(self) -> None:
        self.ending = Ending()
        self.last_seq = 0
        self.constraint_mode = _NO_MODE
        self.engine_limits: tuple[str, ...] = ()


@dataclass(slots=True)
class Question:
    """What a request asks that may be answered by the answer to a similar question.

    `scope_key` stands for all but the question, `cache_key` for all of it. `is_asked`: one was looked for.
    """

    text: str
    cache_key: bytes
    scope_key: bytes
    min_similarity: float
    max_age_ms: int
    allow_hits: bool
    has_passages: bool
    is_asked: bool = False


class Shared(Protocol):
    """A generation that others may follow."""

    @property
    def has_followers(self) -> bool:
        """Others do."""
        ...


class Job:
    """One request. Owned by the task that runs it; others read.

    `started_s` and `deadline_s` are times of `time.monotonic`; `decision_us` is how long the decision took.
    """

    def __init__(  # noqa: PLR0917 - names of parameters would cost half of what a job does
        self,
        intake: Intake,
        request_id: str,
        parts: PromptParts,
        features: Features,
        schema: Schema | None,
        decision: Decision,
        decision_us: int,
        inner_metadata: Mapping[str, str | bytes],
        deadline_s: float,
        explanation: tuple[str, ...],
        record: dict[str, Any] | None,
        transcript: Transcript,
    ) -> None:
        self.intake = intake
        self.request = intake.request
        self.principal = principal = intake.principal
        self.tenant = principal.tenant
        """The owner of the key."""
        self.request_id = request_id
        self.parts = parts
        self.features = features
        self.schema = schema
        self.decision = decision
        self.decision_us = decision_us
        self.inner_metadata = inner_metadata
        self.started_s = intake.arrived_s
        self.deadline_s = deadline_s
        self.explanation = explanation
        self.record = record
        self.transcript = transcript
        self.stage = "admission"
        self.target: Target | None = None
        self.canned_reason = _NOT_DEGRADED
        self.question: Question | None = None
        self.kept: asyncio.Task[StoredAnswer | None] | None = None
        self.is_similar = False
        self.similar_reason = _NOT_DEGRADED
        self.failed: tuple[str, ...] = ()
        self.cache_reason = decision.cache_reason
        self.retrieval_reason = decision.retrieval_reason
        self.unavailable: list[str] = []
        self.passages: list[Passage] = []
        self.reading = Reading()
        self.cascade: Judgement | None = None
        self.discarded_usage: Usage | None = None
        self.continuations: list[Continuation] = []
        self.sends = Sends()
        self.admission_ms = 0
        self.retrieval_wait_ms = 0
        self.first_field_ms = 0
        self.rag_overlap_ms = 0
        self.prefetch_hits = 0
        self.is_begun = False
        self.is_billed = False
        self.is_admitted = False
        self.is_refused = False
        self.is_interrupted = False
        self.lease: Shared | None = None
        self.timeline: Timeline | None = None

    @property
    def ending(self) -> Ending:
        """What the ends of the answer said."""
        return self.reading.ending

    @property
    def last_seq(self) -> int:
        """Sequence number of the last frame of the answer that is final, and went out."""
        return min(self.transcript.last_seq or self.reading.last_seq, self.sends.frames)

    @property
    def cascade_reason(self) -> CascadeReason.ValueType:
        """How the cascade ended; UNSPECIFIED without one, and where neither tier answered."""
        if self.cascade is None or self.canned_reason or self.is_similar:
            return _NO_CASCADE
        if self.degraded_level:
            return CascadeReason.CASCADE_REASON_KEPT_FULL_UNAVAILABLE
        return self.cascade.reason

    @property
    def can_continue(self) -> bool:
        """Another node may go on with what has been sent: it is all here, and is one document."""
        return self.transcript.is_kept and not self.parts.tools

    @property
    def scopes_used(self) -> tuple[str, ...]:
        """The scopes without which the answer could not be had."""
        tiers = WORD_OF_TIER.values() if self.features.policy.is_cascade else (WORD_OF_TIER[self.decision.tier],)
        return (*tiers, *(("ssop",) if self.schema is not None else ()), *(("rag",) if self.passages else ()))

    @property
    def has_followers(self) -> bool:
        """Other requests wait for what this one generates."""
        return self.lease is not None and self.lease.has_followers

    @property
    def degraded_level(self) -> int:
        """0 unless the answer comes from below the chosen tier."""
        if self.canned_reason:
            return CANNED_LEVEL
        if self.similar_reason:
            return SIMILAR_LEVEL
        return self.target.degraded_level if self.target is not None else 0

    @property
    def degraded_reason(self) -> DegradedReason.ValueType:
        """Why the answer is degraded."""
        if self.canned_reason or self.target is None:
            return self.canned_reason or self.similar_reason
        return self.target.degraded_reason

    @property
    def served_by(self) -> str:
        """What the answer comes from: a node's name, `cache`, `similar` or `canned`; empty for a follower."""
        if self.canned_reason:
            return "canned"
        if self.is_similar:
            return "similar"
        if self.cache_reason == _HIT:
            return "cache"
        return self.target.candidate.node if self.target is not None else ""

    @property
    def max_degraded_level(self) -> int:
        """The deepest level that the caller takes."""
        request = self.request
        return request.max_degraded_level if request.HasField("max_degraded_level") else MAX_DEGRADED_LEVEL

    @property
    def chunk_bytes(self) -> int:
        """Largest chunk that the request takes."""
        if size := self.parts.buffer_bytes:
            return size
        return self.schema.auto_buffer_bytes if self.schema is not None else 1024

    def take_similar(self, reason: DegradedReason.ValueType) -> None:
        """The answer to a similar question goes out, and costs nothing. Without a reason it is an ordinary hit."""
        self.is_similar = True
        self.similar_reason = reason
        self.cache_reason = CacheReason.CACHE_REASON_SIMILAR
        self.target = None
        self.reading = Reading()
        self.is_billed = False

    def take_canned(self) -> None:
        """No node answers: a document that stood ready goes out, and costs nothing."""
        self.canned_reason = (
            DegradedReason.DEGRADED_REASON_NODES_FAILED
            if self.failed
            else DegradedReason.DEGRADED_REASON_NODES_UNAVAILABLE
        )
        self.target = None
        self.is_billed = False

    def elapsed_ms(self) -> int:
        """Milliseconds since the request arrived, at least 1."""
        now_s = monotonic()
        return int((now_s - self.started_s) * 1000 + 0.5) or 1

    def mark(self, name: str, detail: str = "") -> None:
        """Note a moment for the trace, where there is one; `detail` is a word of the mesh's, never the caller's."""
        if (timeline := self.timeline) is not None:
            timeline.mark(monotonic(), name, detail)

    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        now_s = monotonic()
        return max(0.0, self.deadline_s - now_s)

    def estimate_usage(self) -> Usage:
        """What a generation without an end consumed, about: an answer that is cut is not free."""
        return Usage(
            input_tokens=self.features.prompt_bytes // _BYTES_PER_TOKEN,
            output_tokens=self.sends.size_bytes // _BYTES_PER_TOKEN,
        )

    def trailers(self) -> dict[str, str | bytes]:
        """Trailing metadata."""
        level = self.degraded_level
        return {
            "x-ssop-status": "DEGRADED" if level else "OK",
            "x-ssop-degraded-level": str(level) if level else "0",
            "x-ssop-request-id": self.request_id,
        }
