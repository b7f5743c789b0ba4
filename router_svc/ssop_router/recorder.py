"""The decision log: one JSON line for each request, bounded in memory and on disk, written off the loop."""

import asyncio
import hashlib
import json
import logging
import os
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ssop.v1.frame_pb2 import Verdict
from ssop.v1.mesh_pb2 import CacheReason, CascadeReason, NodeReason, RetrievalReason, TierReason, Usage
from ssop_router.core.candidate import UNSEEN
from ssop_router.core.choice import choose_node
from ssop_router.core.decision import TIERS, Decision, DecisionSettings, Features, ScoreText
from ssop_router.core.policy import WORD_OF_TIER
from ssop_router.core.record import VERSION, describe_complexity, describe_features, describe_tier, find_words
from ssop_router.core.routing import name_loss
from ssop_router.core.snapshot import Snapshot
from ssop_router.footprint import describe_reasons
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.settings import RouterSettings

_MAX_LINES: Final = 10_000
_FLUSH_S: Final = 0.5
_log = logging.getLogger(__name__)


def describe_decision(
    decision: Decision,
    features: Features,
    snapshot: Snapshot,
    settings: DecisionSettings,
    *,
    now_ms: int,
    score_text: ScoreText,
    conversation: str,
    with_text: bool,
) -> dict[str, Any]:
    """All of a line but the outcome: what was decided, and what another policy needs to decide anew."""
    tiers: dict[str, Any] = {}
    for tier in TIERS:
        # Which of equal nodes is taken makes no difference here.
        candidate, _ = choose_node(features, snapshot, settings, tier, now_ms=now_ms, rng=random.Random(0))  # noqa: S311
        loss = "" if candidate is not None else _word(TierReason, name_loss(features, snapshot, tier), "TIER_REASON_")
        tiers[WORD_OF_TIER[tier]] = describe_tier(candidate.signals if candidate is not None else UNSEEN, loss)
    complexity = decision.complexity if decision.complexity is not None else score_text(features.user_text)
    return {
        "request": describe_features(features, conversation, with_text=with_text),
        "words": find_words(features, settings.rules),
        "complexity": describe_complexity(complexity),
        "tiers": tiers,
        "decision": {
            "tier": WORD_OF_TIER[decision.tier],
            "reason": _word(TierReason, decision.tier_reason, "TIER_REASON_"),
            "node": decision.candidate.node if decision.candidate is not None else "",
            "node_reason": _word(NodeReason, decision.node_reason, "NODE_REASON_"),
            **describe_reasons(decision),
        },
    }


def name_conversation(tenant: str, conversation_id: str) -> str:
    """Stands for a conversation in a log: the same for the same one, and nothing that a caller wrote."""
    if not conversation_id:
        return ""
    return hashlib.sha256(f"{tenant}\0{conversation_id}".encode()).hexdigest()[:16]


def _describe_result(job: Job, outcome: str) -> dict[str, Any]:
    usage, discarded = job.ending.usage, job.discarded_usage or Usage()
    return {
        "outcome": outcome,
        "served_by": _name_server(job),
        "served_model": job.target.candidate.model if job.target is not None else "",
        "cache": _word(CacheReason, job.cache_reason, "CACHE_REASON_"),
        "retrieval": _word(RetrievalReason, job.retrieval_reason, "RETRIEVAL_REASON_"),
        "degraded_level": job.degraded_level,
        "failed_attempts": len(job.failed),
        "cascade": _word(CascadeReason, job.cascade_reason, "CASCADE_REASON_"),
        "cascade_confidence": job.cascade.confidence if job.cascade is not None else None,
        "verdict": _word(Verdict, job.ending.verdict, "VERDICT_"),
        "first_field_ms": job.first_field_ms,
        "total_ms": job.elapsed_ms(),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "discarded_input_tokens": discarded.input_tokens,
        "discarded_output_tokens": discarded.output_tokens,
    }


def _name_server(job: Job) -> str:
    if job.target is not None:
        return WORD_OF_TIER[job.target.tier]
    return "canned" if job.canned_reason else ""


def _word(kind: Any, value: int, prefix: str) -> str:
    name: str = kind.Name(value)
    return "" if name.endswith("_UNSPECIFIED") else name.removeprefix(prefix).lower()


class Recorder:
    """Takes lines, and writes them from a thread. `clock_ms` is that of the wall.

    Lines that the disk does not take in time are dropped and counted; so are those of a file that can't be written.
    """

    def __init__(self, settings: RouterSettings, metrics: RouterMetrics, clock_ms: Callable[[], int]) -> None:
        self.with_text = settings.decision_log_text
        self._path = Path(settings.decision_log) if settings.decision_log else None
        self.is_on = self._path is not None
        """Whether there is a log."""
        self._max_bytes = settings.decision_log_max_bytes
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._lines: deque[str] = deque()
        self._is_broken = False

    def record(self, job: Job, outcome: str) -> None:
        """A request has ended."""
        if self._path is None or job.record is None:
            return
        if len(self._lines) >= _MAX_LINES:
            self._metrics.decisions_not_logged.labels("full").inc()
            return
        line = {
            "v": VERSION,
            "at_ms": self._clock_ms(),
            "request_id": job.request_id,
            "tenant": job.tenant,
            **job.record,
            "result": _describe_result(job, outcome),
        }
        self._lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))

    async def run(self) -> None:
        """Write lines as they come; runs until cancelled, and writes what is left then."""
        if self._path is None:
            return
        try:
            while True:
                await asyncio.sleep(_FLUSH_S)
                await self._flush(self._path)
        finally:
            lines = self._take()
            if lines:
                # The loop is about to end: there is no thread to wait for.
                self._try_write(self._path, lines)

    def _take(self) -> list[str]:
        lines = list(self._lines)
        self._lines.clear()
        return lines

    async def _flush(self, path: Path) -> None:
        if lines := self._take():
            await asyncio.to_thread(self._try_write, path, lines)

    def _try_write(self, path: Path, lines: list[str]) -> None:
        try:
            _write(path, lines, self._max_bytes)
        except OSError as error:
            self._metrics.decisions_not_logged.labels("unwritable").inc(len(lines))
            if not self._is_broken:
                _log.warning("the decision log can't be written", extra={"cause": error.strerror})
            self._is_broken = True
        else:
            self._is_broken = False


def _write(path: Path, lines: list[str], max_bytes: int) -> None:
    size = path.stat().st_size if path.exists() else 0
    batch: list[bytes] = []
    for line in lines:
        data = f"{line}\n".encode("utf-8", "replace")
        if size and size + len(data) > max_bytes:
            _append(path, batch)
            batch = []
            path.replace(path.with_name(f"{path.name}.1"))
            size = 0
        batch.append(data)
        size += len(data)
    _append(path, batch)


def _append(path: Path, batch: list[bytes]) -> None:
    # Whoever may read the log learns who asks how much.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(b"".join(batch))
