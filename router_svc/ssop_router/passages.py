"""The passages of one request: fetched while it is admitted where that pays, and put into it when it generates."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ssop.v1.mesh_pb2 import RetrievalReason
from ssop_chassis.tracing import AttributeValue, add_event
from ssop_router.background import Background
from ssop_router.core.ahead import AheadJudge
from ssop_router.dependency import Unavailable
from ssop_router.job import Job
from ssop_router.metrics import RouterMetrics
from ssop_router.retrieval import Collections, Found, Retrieval

_MOST_MS: Final = 2**32 - 1
"""What an Accounting holds."""


def _describe(job: Job) -> Mapping[str, AttributeValue]:
    """For the trace; never a text."""
    return {
        "ssop.retrieval_reason": RetrievalReason.Name(job.retrieval_reason),
        "ssop.passages": len(job.passages),
        "ssop.retrieval_wait_ms": job.retrieval_wait_ms,
        "ssop.rag_overlap_ms": job.rag_overlap_ms,
        "ssop.prefetches": job.intake.prefetches.started,
        "ssop.prefetch_hits": job.prefetch_hits,
    }


@dataclass(frozen=True, slots=True)
class Passages:
    """Makes the fetches of requests."""

    retrieval: Retrieval
    judge: AheadJudge
    background: Background
    metrics: RouterMetrics

    def begin(self, job: Job, collections: Collections) -> "Fetch":
        """The fetch of a request that is about to be admitted; it runs already where that is likely to pay."""
        fetch = Fetch(self, job, collections)
        if self.judge.is_worth(job.tenant, is_wanted=job.decision.has_prefetch):
            fetch.start()
        return fetch


class Fetch:
    """The passages of one request. Close it, whatever became of the request."""

    def __init__(self, passages: Passages, job: Job, collections: Collections) -> None:
        self._passages = passages
        self._job = job
        self._collections = collections
        self._task: asyncio.Task[Found] | None = None
        self._started_s = 0.0
        self._took_ms: float | None = None
        self._admission_ms: int | None = None

    def start(self) -> None:
        """Fetch, before it is known whether the passages are needed."""
        self._started_s = time.monotonic()
        self._task = self._passages.background.start(self._fetch())

    async def _fetch(self) -> Found:
        started_s = time.monotonic()
        found = await self._passages.retrieval.retrieve(self._job)
        self._took_ms = (time.monotonic() - started_s) * 1000
        return found

    async def collect(self) -> str:
        """Put the passages into the request that generates now; why its answer may not be stored, or "".

        Raises COLLECTION_UNKNOWN.
        """
        job = self._job
        job.stage = "retrieval"
        came_ms = job.elapsed_ms()
        ahead_ms = (time.monotonic() - self._started_s) * 1000
        self._admission_ms = job.admission_ms
        task, self._task = self._task, None
        try:
            found = await (task if task is not None else self._fetch())
        except Unavailable:
            job.retrieval_wait_ms = max(1, job.elapsed_ms() - came_ms)
            raise
        job.retrieval_wait_ms = max(1, job.elapsed_ms() - came_ms)
        job.passages = list(found.passages)
        job.rag_overlap_ms = found.overlap_ms
        if task is not None:
            own_ms = max(1, round(min(self._took_ms or 0.0, ahead_ms)))
            # The service says the rest: a sum that is no such number is not to keep the answer from its end.
            job.rag_overlap_ms = min(_MOST_MS, found.overlap_ms + own_ms)
            self._passages.metrics.retrievals_ahead.labels("used").inc()
        job.prefetch_hits = int(found.is_prefetch_hit)
        job.retrieval_reason = found.reason
        job.mark("retrieved", RetrievalReason.Name(found.reason).removeprefix("RETRIEVAL_REASON_").lower())
        add_event("ssop.retrieval", lambda: _describe(job))
        if found.is_lossy:
            return "passages_lossy"
        # The key promises passages of these versions.
        return "" if found.index_version == self._collections.index_version else "index_changed"

    def drop(self) -> None:
        """The passages are not needed now."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._passages.metrics.retrievals_ahead.labels("wasted").inc()

    def close(self) -> None:
        """The request is over."""
        self.drop()
        self._passages.judge.record(
            self._job.tenant,
            is_needed=self._admission_ms is not None,
            admission_ms=self._job.admission_ms,
            retrieval_ms=self._took_ms,
        )
