"""The worker: posts from the queue through the mesh to the writer, so many at a time.

A post that it holds is its own until the sink has the record: it says so to the queue again and again, whatever takes
so long. What goes wrong for one post is its record or its dead letter; what is wrong with the mesh, it waits out.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from ssop_chassis.logs import describe
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.dead_letters import DeadLetterOffice
from ssop_opinion.ending import end
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.patience import Patience
from ssop_opinion.ports import AlertDesk, Analyst, MeshAwayError, Sink
from ssop_opinion.queue import Entry, PostQueue, QueueAwayError
from ssop_opinion.reposts import RepostAnalyst
from ssop_opinion.settings import OpinionSettings
from ssop_opinion.writer import RecordWriter

GAVE_UP: Final = "gave_up"
_READ_BLOCK_MS: Final = 1_000
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
        self._held: dict[str, Entry] = {}
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
            await self._queue.release(list(self._held))
        except QueueAwayError:
            _log.info("posts wait until this worker is taken for dead", extra={"count": len(self._held)})

    async def _read(self) -> None:
        while True:
            room = self._settings.max_analyses - len(self._tasks)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            async with self._store.turn():
                try:
                    entries = await self._queue.read(min(room, self._settings.batch), _READ_BLOCK_MS)
                except QueueAwayError as error:
                    self._store_failed(error)
                    continue
                self._store.worked()
            for entry in entries:
                self._begin(entry)

    async def _claim(self) -> None:
        while True:
            await asyncio.sleep(self._settings.claim_ms / 3000)
            room = self._settings.max_analyses - len(self._tasks)
            if room <= 0:
                continue
            try:
                entries = await self._queue.claim(min(room, self._settings.batch))
            except QueueAwayError:
                continue
            for entry in entries:
                if entry.id not in self._held:
                    self._metrics.taken_over.inc()
                    self._begin(entry)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.claim_ms / 3000)
            try:
                await self._queue.keep(list(self._held))
                queued, letters = await self._queue.sizes()
            except QueueAwayError:
                continue
            self._metrics.queued.set(queued)
            self._metrics.letters.set(letters)

    def _begin(self, entry: Entry) -> None:
        self._held[entry.id] = entry
        task = asyncio.create_task(self._work(entry))
        self._tasks.add(task)
        self._metrics.in_flight.set(len(self._tasks))
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._metrics.in_flight.set(len(self._tasks))
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a post could not be worked on: %s", describe(error))

    def _let_go(self, entry: Entry) -> None:
        self._held.pop(entry.id, None)

    async def _work(self, entry: Entry) -> None:
        post = entry.post
        if post is None:
            await self._office.bury_entry(entry, "payload_unreadable")
            await self._leave(entry)
            return
        if entry.tries > self._settings.max_tries:
            await self._give_up(entry, post, "it was begun too often")
            return
        if entry.tries <= _SUSPECT_TRIES:
            analysis = await self._analyse(post)
        else:
            async with self._suspects:
                analysis = await self._analyse(post)
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

    async def _analyse(self, post: Post) -> Analysis | None:
        """The analysis, however long the mesh is away; None when it raised something else too often."""

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
                    self._metrics.tries.labels("mesh").inc()
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
