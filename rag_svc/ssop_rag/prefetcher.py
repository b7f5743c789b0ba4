"""Runs prefetches on idle threads and hands them to the requests they are for."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis import logs
from ssop_chassis.errors import MeshError
from ssop_rag.core.model import Matrix, Query
from ssop_rag.core.prefetch import Begun, Entry, PrefetchBook, Result, Waste
from ssop_rag.core.ranking import RankerChoice
from ssop_rag.embedder import Embedder
from ssop_rag.observations import RagMetrics
from ssop_rag.pool import WorkPool
from ssop_rag.store import VectorStore

_log = logging.getLogger(__name__)
_SWEEP_SLACK_MS: Final = 1


@dataclass(frozen=True, slots=True)
class Clocks:
    """Milliseconds: since the epoch for documents, monotonic for prefetches."""

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class Prefetcher:
    """The prefetches of this process. It owns their tasks; the book says which are wanted."""

    def __init__(
        self,
        *,
        book: PrefetchBook,
        store: VectorStore,
        embedder: Embedder,
        pool: WorkPool,
        metrics: RagMetrics,
        clocks: Clocks,
        rankers: RankerChoice,
    ) -> None:
        self._book = book
        self._store = store
        self._embedder = embedder
        self._pool = pool
        self._metrics = metrics
        self._clocks = clocks
        self._rankers = rankers
        self._tasks: dict[Entry, asyncio.Task[Result]] = {}

    @property
    def running(self) -> int:
        """Prefetches that run."""
        return sum(1 for task in self._tasks.values() if not task.done())

    async def start(self, tenant: str, request_id: str, names: tuple[str, ...], text: str, count: int) -> bool:
        """Start fetching `count` candidates for a normalised prefix; False when it is shed or nothing is there.

        Raises MeshError COLLECTION_UNKNOWN.
        """
        self._sweep()
        try:
            if not await self._store.has_collections(tenant, names, now_ms=self._clocks.wall_ms()):
                return False
        except MeshError as error:
            if error.reason != ErrorReason.ERROR_REASON_OVERLOADED:
                raise
            self._metrics.prefetch_shed(tenant, "busy")
            return False
        beginning = self._book.begin(tenant, request_id, names, text, self._clocks.monotonic_ms())
        if beginning.replaced is not None:
            self._waste(beginning.replaced, Waste.REPLACED)
        if beginning.outcome is Begun.KEPT:
            return True
        if beginning.entry is None:
            self._metrics.prefetch_shed(tenant, beginning.outcome.value)
            return False
        return self._begin(beginning.entry, count)

    def _begin(self, entry: Entry, count: int) -> bool:
        has_vector = self._rankers.needs_vector(entry.names)
        embedding = self._pool.try_run(lambda: self._embedder.embed_query([entry.text]) if has_vector else None)
        if embedding is None:
            self._book.drop(entry)
            self._metrics.prefetch_shed(entry.tenant, "busy")
            return False
        task = asyncio.ensure_future(self._fetch(entry, embedding, count))
        self._tasks[entry] = task
        task.add_done_callback(lambda done: self._settle(entry, done))
        delay_ms = self._book.expires_at_ms(entry) - entry.started_ms + _SWEEP_SLACK_MS
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._sweep)
        return True

    async def _fetch(self, entry: Entry, embedding: asyncio.Future[Matrix | None], count: int) -> Result:
        rows = await embedding
        prefix = Query(entry.text, None if rows is None else rows[0])
        found = await self._store.candidates(entry.tenant, entry.names, prefix, count, now_ms=self._clocks.wall_ms())
        result = Result(prefix.vector, found, self._clocks.monotonic_ms())
        self._book.finish(entry, result)
        return result

    async def claim(self, tenant: str, request_id: str, names: tuple[str, ...], text: str) -> Entry | None:
        """The request's prefetch with its result, if it can be of use; one that can't is cancelled and wasted.

        Waits for one that still runs only where its text is the whole query, since embedding again takes longer.
        """
        self._sweep()
        entry = self._book.take(tenant, request_id, self._clocks.monotonic_ms()) if request_id else None
        if entry is None:
            return None
        task = self._tasks.get(entry)
        if entry.names != names or (entry.result is None and entry.text != text) or task is None:
            self._waste(entry, Waste.MISSED)
            return None
        try:
            await task
        except asyncio.CancelledError:
            self._waste(entry, Waste.CANCELLED)
            raise
        except Exception as error:  # noqa: BLE001 - a prefetch never fails its request: the plain search follows
            _log.warning("a prefetch failed", extra={"cause": logs.describe(error)})
            self._waste(entry, Waste.FAILED)
            return None
        self._tasks.pop(entry, None)
        return entry

    def cancel(self, tenant: str, request_id: str) -> None:
        """Drop a prefetch."""
        self._sweep()
        entry = self._book.take(tenant, request_id, self._clocks.monotonic_ms())
        if entry is not None:
            self._waste(entry, Waste.CANCELLED)

    async def close(self) -> None:
        """Cancel all that run."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _waste(self, entry: Entry, why: Waste) -> None:
        task = self._tasks.pop(entry, None)
        if task is not None:
            task.cancel()
        self._metrics.prefetch_wasted(entry.tenant, why)

    def _settle(self, entry: Entry, task: asyncio.Task[Result]) -> None:
        """Forget a task that failed while nobody waited for it; those that ended well wait to be claimed."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._book.drop(entry):
            _log.warning("a prefetch failed", extra={"cause": logs.describe(error)})
            self._waste(entry, Waste.FAILED)

    def _sweep(self) -> None:
        for entry in self._book.expire(self._clocks.monotonic_ms()):
            self._waste(entry, Waste.EXPIRED)
