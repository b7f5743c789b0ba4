"""The worker: posts from the queue through the mesh to the writer, so many at a time, tenants by turns.

A post that it holds is its own until the sink has the record: it says so to the queue again and again, whatever takes
so long. What goes wrong for one post is its record or its dead letter; what is wrong with the mesh, it waits out.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ssop_chassis.logs import describe
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.core.turns import Turns
from ssop_opinion.dead_letters import DeadLetterOffice
from ssop_opinion.ending import end
from ssop_opinion.entries import Entry
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.patience import Patience, pause_s
from ssop_opinion.ports import AlertDesk, Analyst, MeshAwayError, Sink
from ssop_opinion.queue import PostQueue, QueueAwayError
from ssop_opinion.reposts import RepostAnalyst
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.writer import RecordWriter

GAVE_UP: Final = "gave_up"
_READ_BLOCK_MS: Final = 1_000
_LOOK_S: Final = 0.05
"""How often to look for posts of others while all that was read belongs to tenants that may have no more now."""
_SUSPECT_TRIES: Final = 3
"""A post that was begun more often than that may be what kills workers: such are analysed one at a time."""
_log = logging.getLogger(__name__)


class Worker:
    """One worker. `now_ms` is the wall clock."""

    def __init__(
        self,
        settings: OpinionSettings,
        *,
        queue: PostQueue,
        analyst: Analyst,
        sink: Sink,
        desk: AlertDesk,
        metrics: OpinionMetrics,
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._analyst = RepostAnalyst(analyst, settings.repost_window_ms / 1000, time.monotonic)
        self._desk = desk
        self._metrics = metrics
        self._now_ms = now_ms
        self._office = DeadLetterOffice(queue, metrics)
        max_wait_s = settings.max_wait_ms / 1000
        self._mesh = Patience(max_wait_s, rng, lambda is_away: self._tell_away("mesh", is_away))
        self._store = Patience(max_wait_s, rng, lambda is_away: self._tell_away("queue", is_away))
        self._writer = RecordWriter(
            settings,
            queue=queue,
            sink=sink,
            desk=desk,
            office=self._office,
            metrics=metrics,
            patience=Patience(max_wait_s, rng, lambda is_away: self._tell_away("sink", is_away)),
            now_ms=now_ms,
            done=self._let_go,
        )
        self._rng = rng
        self._turns: Turns[Entry] = Turns(settings.max_analyses)
        self._held: dict[tuple[str, str], Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._suspects = asyncio.Semaphore(1)

    async def run(self, stop: asyncio.Event, drain_s: float) -> None:
        """Work until told to stop; then let what runs finish for `drain_s`, and leave the rest to others."""
        loops = [
            asyncio.create_task(loop(), name=f"opinion-{name}")
            for name, loop in (("writer", self._writer.run), ("claimer", self._claim), ("keeper", self._keep))
        ]
        reader = asyncio.create_task(self._read(), name="opinion-reader")
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([*loops, reader, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (*loops, reader):
                if task.done():
                    task.result()
            reader.cancel()
            loops[1].cancel()
            await self._drain(drain_s)
        finally:
            await end({*loops, reader, stopping, *self._tasks})
            await self._release()

    async def _drain(self, drain_s: float) -> None:
        try:
            async with asyncio.timeout(drain_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._writer.flushed()
        except TimeoutError:
            _log.warning("posts are left to other workers", extra={"count": len(self._held)})

    async def _release(self) -> None:
        try:
            await self._queue.release(list(self._held.values()))
        except QueueAwayError:
            _log.info("posts wait until this worker is taken for dead", extra={"count": len(self._held)})

    async def _read(self) -> None:
        turns = self._turns
        while True:
            self._room.clear()
            if turns.free <= 0:
                await self._room.wait()
                continue
            # Who may be asked again soon is not to wait for others' posts; and a read of no stream ends at once.
            if (is_held_back := self._is_held_back()) and not turns.has_next(time.monotonic()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._room.wait()
            async with self._store.turn():
                try:
                    entries = await self._queue.read(
                        self._fair_count(),
                        0 if is_held_back else _READ_BLOCK_MS,
                        without=turns.well_stocked(time.monotonic()),
                    )
                except QueueAwayError as error:
                    self._store_failed(error)
                    continue
                self._store.worked()
            self._take(entries)

    def _is_held_back(self) -> bool:
        """Whether there are tenants of whom no more posts are wanted now."""
        return bool(self._turns.waiting or self._turns.well_stocked(time.monotonic()))

    def _fair_count(self) -> int:
        """Posts to read of each tenant: all together are no more than are analysed at the same time."""
        share = self._settings.max_analyses // max(1, len(self._queue.lengths))
        return max(1, min(self._turns.free, self._settings.batch, share))

    async def _claim(self) -> None:
        while True:
            await asyncio.sleep(self._settings.claim_ms / 3000)
            if self._turns.free <= 0:
                continue
            try:
                entries = await self._queue.claim(self._fair_count())
            except QueueAwayError:
                continue
            taken = [entry for entry in entries if entry.place not in self._held]
            self._metrics.taken_over.inc(len(taken))
            self._take(taken)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.claim_ms / 3000)
            try:
                await self._queue.keep(list(self._held.values()))
                await self._queue.refresh()
                queued, letters = await self._queue.sizes()
            except QueueAwayError:
                continue
            self._metrics.queued.set(queued)
            self._metrics.tell_lengths(self._queue.lengths)
            self._metrics.letters.set(letters)

    def _take(self, entries: Iterable[Entry]) -> None:
        """Hold posts that were read, and begin what may begin."""
        turns = self._turns
        for entry in entries:
            self._held[entry.place] = entry
            turns.add(entry.stream, entry)
        turns.is_shared = self._queue.is_shared
        now_s = time.monotonic()
        while (begun := turns.begin(now_s)) is not None:
            task = asyncio.create_task(self._work(begun))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, begun.stream))
        self._metrics.in_flight.set(len(self._tasks))

    def _ended(self, stream: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._turns.end(stream)
        self._metrics.in_flight.set(len(self._tasks))
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a post could not be worked on: %s", describe(error))

    def _let_go(self, entry: Entry) -> None:
        self._held.pop(entry.place, None)

    async def _work(self, entry: Entry) -> None:
        post = entry.post
        if post is None:
            await self._office.bury_entry(entry, "payload_unreadable")
            await self._leave(entry)
            return
        if entry.tries > self._settings.max_tries:
            await self._give_up(entry, post, "it was begun too often")
            return
        try:
            if entry.tries <= _SUSPECT_TRIES:
                analysis = await self._analyse(post)
            else:
                async with self._suspects:
                    analysis = await self._analyse(post)
        except MeshAwayError as error:
            self._leave_alone(entry, error)
            return
        self._resume(entry.stream)
        if analysis is None:
            await self._give_up(entry, post, "its analysis failed again and again")
            return
        await self._writer.put(entry, Record(post, analysis, self._now_ms()))

    async def _give_up(self, entry: Entry, post: Post, why: str) -> None:
        """One record a post, whatever happened to it; and a dead letter for whoever looks into it."""
        await self._office.bury_entry(entry, GAVE_UP)
        analysis = Analysis(fields={}, verdict="failed", reason=f"{GAVE_UP}: {why}")
        await self._writer.put(entry, Record(post, analysis, self._now_ms()))

    async def _leave(self, entry: Entry) -> None:
        while True:
            try:
                await self._queue.finish([entry])
                break
            except QueueAwayError as error:
                self._store_failed(error)
                await asyncio.sleep(self._settings.max_wait_ms / 10_000)
        self._let_go(entry)

    def _leave_alone(self, entry: Entry, error: MeshAwayError) -> None:
        """Let a tenant wait that the mesh refuses, with the post that met it: a slot is for those who are served."""
        self._turns.put_back(entry.stream, entry)
        now_s = time.monotonic()
        failures = self._turns.failures(entry.stream, now_s)
        if failures is None:
            return
        wait_s = pause_s(failures, error.retry_after_s, self._settings.max_wait_ms / 1000, self._rng)
        self._turns.pause(entry.stream, now_s + wait_s)
        self._metrics.away.labels("tenant").set(self._turns.paused)
        if not failures:
            _log.warning("the mesh refuses a tenant: %s", describe(error), extra={"tenant": entry.stream})

    def _resume(self, tenant: str) -> None:
        if self._turns.paused:
            self._turns.resume(tenant)
            self._metrics.away.labels("tenant").set(self._turns.paused)

    async def _analyse(self, post: Post) -> Analysis | None:
        """The analysis, however long the mesh is away; None when it raised something else too often.

        Raises MeshAwayError where it refuses the tenant.
        """

        def on_field(name: str, value: Any) -> None:
            try:
                self._desk.field_arrived(post, name, value, self._now_ms())
            except Exception as error:  # noqa: BLE001 - a fault of the alerts must not cost the analysis
                self._metrics.tries.labels("desk").inc()
                _log.error("the alert desk failed: %s", describe(error))

        failures = 0
        while failures < self._settings.max_tries:
            async with self._mesh.turn():
                began_s = time.monotonic()
                try:
                    async with asyncio.timeout(self._settings.analysis_timeout_ms / 1000):
                        analysis = await self._analyst.analyse(post, on_field)
                except MeshAwayError as error:
                    self._metrics.tries.labels("tenant" if error.is_of_tenant else "mesh").inc()
                    if error.is_of_tenant:
                        # It answers.
                        self._mesh.worked()
                        raise
                    self._mesh.failed(error.retry_after_s)
                    continue
                except TimeoutError:
                    # Of all that hangs, what hangs for this post alone ends as a `failed` record after some tries.
                    self._metrics.tries.labels("timeout").inc()
                    failures += 1
                    continue
                except Exception as error:  # noqa: BLE001 - whatever a post sets off, others go on
                    self._metrics.tries.labels("analysis").inc()
                    _log.error("an analysis failed: %s", describe(error))
                    failures += 1
                    await asyncio.sleep(0.05 * failures)
                    continue
                self._mesh.worked()
            self._metrics.analysis_seconds.observe(time.monotonic() - began_s)
            return analysis
        return None

    def _store_failed(self, error: QueueAwayError) -> None:
        self._metrics.tries.labels("queue").inc()
        self._store.failed()
        _log.warning("the queue is away: %s", describe(error))

    def _tell_away(self, what: str, is_away: bool) -> None:
        self._metrics.away.labels(what).set(is_away)
        _log.warning("%s is %s", what, "away" if is_away else "back")
