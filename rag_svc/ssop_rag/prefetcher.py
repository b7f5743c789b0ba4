"""Runs prefetches on threads of their own, behind bounds, and hands them to the requests they are for."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.rag_pb2 import GetPrefetchUsageResponse, PrefetchOutcome
from ssop_chassis import logs
from ssop_chassis.errors import MeshError
from ssop_chassis.words import count_tokens
from ssop_codec.probes import prefetched
from ssop_rag.core.account import Account, Accounts
from ssop_rag.core.model import Query, Vector
from ssop_rag.core.prefetch import Begun, Entry, PrefetchBook, Result, Use, Waste
from ssop_rag.core.pressure import Pressure
from ssop_rag.core.ranking import RankerChoice
from ssop_rag.core.worth import Mode
from ssop_rag.embedder import Embedder
from ssop_rag.observations import RagMetrics
from ssop_rag.pool import WorkPool
from ssop_rag.store import VectorStore

_log = logging.getLogger(__name__)
_SWEEP_SLACK_MS: Final = 1
_OUTCOMES: Final = {
    "off": PrefetchOutcome.PREFETCH_OUTCOME_OFF,
    "budget": PrefetchOutcome.PREFETCH_OUTCOME_BUDGET,
    "busy": PrefetchOutcome.PREFETCH_OUTCOME_BUSY,
    Begun.TENANT_FULL.value: PrefetchOutcome.PREFETCH_OUTCOME_TENANT_FULL,
    Begun.BOOK_FULL.value: PrefetchOutcome.PREFETCH_OUTCOME_BOOK_FULL,
}


@dataclass(frozen=True, slots=True)
class Clocks:
    """Milliseconds: since the epoch for documents, monotonic for prefetches."""

    wall_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Embedded:
    """A vector, and how long it took."""

    vector: Vector
    wall_ms: float
    cpu_ms: float


class Prefetcher:
    """The prefetches of this process. It owns their tasks; the book says which are wanted.

    `pool` embeds them; while queries wait on `queries`, none is started.
    """

    def __init__(
        self,
        *,
        book: PrefetchBook,
        accounts: Accounts,
        store: VectorStore,
        embedder: Embedder,
        pool: WorkPool,
        queries: WorkPool,
        metrics: RagMetrics,
        clocks: Clocks,
        rankers: RankerChoice,
        pressure: Pressure,
    ) -> None:
        self._book = book
        self._accounts = accounts
        self._store = store
        self._embedder = embedder
        self._pool = pool
        self._queries = queries
        self._metrics = metrics
        self._clocks = clocks
        self._rankers = rankers
        self._pressure = pressure
        self._tasks: dict[Entry, asyncio.Task[Result]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        """Prefetches that run."""
        return sum(1 for task in self._tasks.values() if not task.done())

    def __len__(self) -> int:
        """Prefetches that run or wait to be used, and tasks that were not forgotten."""
        return max(len(self._tasks), len(self._book))

    def usage(self, tenant: str) -> GetPrefetchUsageResponse:
        """What a tenant's prefetches cost and saved, as it is told."""
        now_ms = self._clocks.monotonic_ms()
        account = self._accounts.of(tenant, now_ms)
        tally = account.tally
        return GetPrefetchUsageResponse(
            started=tally.started,
            hits=tally.hits,
            wasted=tally.wasted,
            shed=tally.shed,
            tokens=tally.tokens,
            candidates=tally.candidates,
            saved_ms=round(tally.saved_ms),
            wasted_ms=round(tally.wasted_ms),
            budget=self._accounts.budget.prefetches,
            budget_left=account.budget.left(now_ms),
            window_ms=self._accounts.budget.window_ms,
            is_off=account.worth.mode is Mode.OFF,
            probe_in_ms=account.worth.probe_in_ms(now_ms),
        )

    async def start(
        self, tenant: str, request_id: str, names: tuple[str, ...], text: str, count: int
    ) -> PrefetchOutcome.ValueType:
        """Start fetching `count` candidates for a normalised prefix. Raises MeshError COLLECTION_UNKNOWN."""
        self._sweep()
        try:
            if not await self._store.has_collections(tenant, names, now_ms=self._clocks.wall_ms()):
                return PrefetchOutcome.PREFETCH_OUTCOME_NOTHING
        except MeshError as error:
            if error.reason != ErrorReason.ERROR_REASON_OVERLOADED:
                raise
            return self._shed(tenant, "busy")
        now_ms = self._clocks.monotonic_ms()
        account = self._accounts.of(tenant, now_ms)
        if why := self._find_obstacle(account, now_ms):
            return self._shed(tenant, why)
        beginning = self._book.begin(tenant, request_id, names, text, now_ms)
        if beginning.replaced is not None:
            self._waste(beginning.replaced, Waste.REPLACED)
        if beginning.outcome is Begun.KEPT:
            return PrefetchOutcome.PREFETCH_OUTCOME_KEPT
        if beginning.entry is None:
            return self._shed(tenant, beginning.outcome.value)
        return self._begin(beginning.entry, account, count)

    def _find_obstacle(self, account: Account, now_ms: int) -> str:
        """Why no prefetch of a tenant may start now; "" where it may."""
        if account.worth.mode is not Mode.ON and not account.worth.may_probe(now_ms):
            return "off"
        if not account.budget.has(now_ms):
            return "budget"
        # Users' queries come first, to the last thread and core.
        return "busy" if self._queries.queued or self._pressure.is_high(now_ms) else ""

    def _begin(self, entry: Entry, account: Account, count: int) -> PrefetchOutcome.ValueType:
        has_vector = self._rankers.needs_vector(entry.names)
        embedding = self._pool.try_run(lambda: self._embed(entry.text) if has_vector else None)
        if embedding is None:
            self._book.drop(entry)
            return self._shed(entry.tenant, "busy")
        account.budget.take(entry.started_ms)
        account.worth.start()
        tokens = count_tokens(entry.text)
        account.tally.started += 1
        account.tally.tokens += tokens
        account.tally.candidates += count
        self._metrics.prefetch_started(entry.tenant, tokens)
        task = asyncio.ensure_future(self._fetch(entry, embedding, count))
        self._tasks[entry] = task
        task.add_done_callback(lambda done: self._settle(entry, done))
        self._sweep_at(self._book.expires_at_ms(entry))
        return PrefetchOutcome.PREFETCH_OUTCOME_STARTED

    def _embed(self, text: str) -> _Embedded:
        """On a thread of the pool."""
        began_ms, began_cpu_s = self._clocks.monotonic_ms(), time.thread_time()
        rows = self._embedder.embed_query([text])
        cpu_ms = (time.thread_time() - began_cpu_s) * 1000
        return _Embedded(rows[0], self._clocks.monotonic_ms() - began_ms, cpu_ms)

    async def _fetch(self, entry: Entry, embedding: "asyncio.Future[_Embedded | None]", count: int) -> Result:
        embedded = await embedding
        embedded_ms = self._clocks.monotonic_ms()
        if embedded is not None:
            self._pressure.record(embedded_ms, wall_ms=embedded.wall_ms, cpu_ms=embedded.cpu_ms)
        prefix = Query(entry.text, None if embedded is None else embedded.vector)
        found = await self._store.candidates(entry.tenant, entry.names, prefix, count, now_ms=self._clocks.wall_ms())
        result = Result(prefix.vector, found, embedded_ms, self._clocks.monotonic_ms())
        self._book.finish(entry, result)
        return result

    def has_other(self, tenant: str, request_id: str, text: str) -> bool:
        """Whether the request has a prefetch, of another text than this."""
        held = self._book.find(tenant, request_id)
        return held is not None and held.text != text

    async def claim(
        self, tenant: str, request_id: str, names: tuple[str, ...], text: str, *, is_lossy: bool = False
    ) -> Entry | None:
        """The request's prefetch with its result, if it can be of use; one that can't is cancelled and wasted.

        Waits for one that still runs only where its text is the whole query, since embedding again takes longer, or
        where its candidates will do (`is_lossy`). Whoever claims one must `use` or `miss` it.
        """
        self._sweep()
        entry = self._book.take(tenant, request_id, self._clocks.monotonic_ms()) if request_id else None
        if entry is None:
            return None
        task = self._tasks.get(entry)
        is_late = entry.result is None and entry.text != text and not is_lossy
        if entry.names != names or is_late or task is None:
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

    def use(self, entry: Entry, use: Use, *, came_ms: int, waited_ms: int) -> None:
        """A claimed prefetch served a request that came at `came_ms` and waited `waited_ms` for it."""
        saved_ms = entry.saved_ms(use, waited_ms)
        prefetched(True, 1_000_000 * max(0, came_ms - entry.started_ms))
        self._metrics.prefetch_hit(entry.tenant, use, entry.overlap_ms(came_ms) / 1000, saved_ms / 1000)
        self._note(entry.tenant, self._accounts.hit(entry.tenant, self._clocks.monotonic_ms(), saved_ms))

    def miss(self, entry: Entry) -> None:
        """A claimed prefetch was of no use."""
        self._waste(entry, Waste.MISSED)

    def cancel(self, tenant: str, request_id: str) -> None:
        """Drop a prefetch."""
        self._sweep()
        entry = self._book.take(tenant, request_id, self._clocks.monotonic_ms())
        if entry is not None:
            self._waste(entry, Waste.CANCELLED)

    async def close(self) -> None:
        """Cancel all that run."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _shed(self, tenant: str, why: str) -> PrefetchOutcome.ValueType:
        self._accounts.of(tenant, self._clocks.monotonic_ms()).tally.shed += 1
        self._metrics.prefetch_shed(tenant, why)
        return _OUTCOMES[why]

    def _waste(self, entry: Entry, why: Waste) -> None:
        task = self._tasks.pop(entry, None)
        if task is not None:
            task.cancel()
        now_ms = self._clocks.monotonic_ms()
        wasted_ms = entry.overlap_ms(now_ms)
        prefetched(False, 1_000_000 * max(0, now_ms - entry.started_ms))
        self._metrics.prefetch_wasted(entry.tenant, why, wasted_ms / 1000)
        self._note(entry.tenant, self._accounts.waste(entry.tenant, now_ms, wasted_ms))

    def _note(self, tenant: str, mode: Mode | None) -> None:
        """Say that the tenant's prefetches went off, or on again."""
        if mode is None:
            return
        self._metrics.prefetch_off(tenant, is_off=mode is Mode.OFF)
        probe_in_ms = self._accounts.of(tenant, self._clocks.monotonic_ms()).worth.probe_in_ms(
            self._clocks.monotonic_ms()
        )
        _log.info("prefetches are %s", mode.value, extra={"tenant": tenant, "probe_in_ms": probe_in_ms})

    def _settle(self, entry: Entry, task: asyncio.Task[Result]) -> None:
        """Forget a task that failed while nobody waited for it; those that ended well wait to be claimed."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._book.drop(entry):
            _log.warning("a prefetch failed", extra={"cause": logs.describe(error)})
            self._waste(entry, Waste.FAILED)

    def _sweep(self) -> None:
        for entry in self._book.expire(self._clocks.monotonic_ms()):
            self._waste(entry, Waste.EXPIRED)

    def _sweep_at(self, at_ms: int) -> None:
        """Sweep when the newest entry expires, once for all that come till then."""
        if self._sweeping is not None:
            return
        delay_ms = max(0, at_ms - self._clocks.monotonic_ms()) + _SWEEP_SLACK_MS
        self._sweeping = asyncio.get_running_loop().call_later(delay_ms / 1000, self._sweep_in_turn)

    def _sweep_in_turn(self) -> None:
        self._sweeping = None
        self._sweep()
        if (at_ms := self._book.next_expiry_ms()) is not None:
            self._sweep_at(at_ms)
