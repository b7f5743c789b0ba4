"""From analyses to the sink: writes of many records, tried until the sink has them, then the queue lets go."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ssop_chassis.logs import describe
from ssop_opinion.core.record import Record
from ssop_opinion.dead_letters import DeadLetterOffice
from ssop_opinion.entries import Entry
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.patience import Patience
from ssop_opinion.ports import AlertDesk, ItemFault, Sink, SinkAwayError
from ssop_opinion.queue import PostQueue, QueueAwayError
from ssop_opinion.settings import OpinionSettings

DESK_TIMEOUT_S: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Finished:
    """A post with its record. `refusals` counts writes in which the sink took others and not this one."""

    entry: Entry
    record: Record
    refusals: int = 0


class RecordWriter:
    """Writes records one bulk after the other. `now_ms` is the wall clock. `done` is told of each post that left."""

    def __init__(
        self,
        settings: OpinionSettings,
        *,
        queue: PostQueue,
        sink: Sink,
        desk: AlertDesk,
        office: DeadLetterOffice,
        metrics: OpinionMetrics,
        patience: Patience,
        now_ms: Callable[[], int],
        done: Callable[[Entry], None],
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._sink = sink
        self._desk = desk
        self._office = office
        self._metrics = metrics
        self._patience = patience
        self._now_ms = now_ms
        self._done = done
        self._waiting: asyncio.Queue[Finished] = asyncio.Queue(2 * settings.bulk)

    async def put(self, entry: Entry, record: Record) -> None:
        """Take a record; waits while too many are not written yet."""
        await self._waiting.put(Finished(entry, record))

    async def flushed(self) -> None:
        """Return when all that was put has left."""
        await self._waiting.join()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            if self._settings.linger_ms and self._waiting.qsize() + 1 < self._settings.bulk:
                await asyncio.sleep(self._settings.linger_ms / 1000)
            while len(batch) < self._settings.bulk and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._write_all(batch)
            for _ in batch:
                self._waiting.task_done()

    async def _write_all(self, batch: Sequence[Finished]) -> None:
        rest: Sequence[Finished] = batch
        while rest:
            async with self._patience.turn():
                rest = await self._write_some(rest)

    async def _write_some(self, batch: Sequence[Finished]) -> Sequence[Finished]:
        """Write, and let go of what needs no other try; the rest."""
        began_s = time.monotonic()
        try:
            faults = await self._sink.write([one.record for one in batch])
        except SinkAwayError as error:
            self._metrics.tries.labels("sink").inc()
            self._patience.failed()
            _log.warning("the sink is away: %s", describe(error))
            return batch
        self._metrics.write_seconds.observe(time.monotonic() - began_s)
        self._metrics.write_records.observe(len(batch))
        by_key = {fault.key: fault for fault in faults}
        written = [one for one in batch if one.record.key not in by_key]
        again = await self._judge_faults([one for one in batch if one.record.key in by_key], by_key, bool(written))
        await self._let_go(written)
        if again:
            self._metrics.tries.labels("sink_item").inc(len(again))
            self._patience.failed()
        else:
            self._patience.worked()
        return again

    async def _judge_faults(
        self, refused: Sequence[Finished], faults: Mapping[str, ItemFault], is_up: bool
    ) -> list[Finished]:
        """Bury what the sink will never take; what is tried again."""
        again: list[Finished] = []
        for one in refused:
            fault = faults[one.record.key]
            # A sink that takes nothing at all is away, whatever it says of each record.
            one.refusals += is_up
            if fault.is_lasting or one.refusals >= self._settings.max_tries:
                await self._bury(one, f"sink_{fault.reason}")
            else:
                again.append(one)
        return again

    async def _bury(self, one: Finished, reason: str) -> None:
        await self._office.bury_entry(one.entry, reason)
        await self._finish([one.entry])

    async def _let_go(self, written: Sequence[Finished]) -> None:
        now_ms = self._now_ms()
        await self._tell_desk([one.record for one in written], now_ms)
        await self._finish([one.entry for one in written])
        for one in written:
            analysis = one.record.analysis
            self._metrics.records.labels(
                analysis.verdict, str(analysis.degraded_level > 0).lower(), analysis.cache or "none"
            ).inc()
            self._metrics.post_seconds.observe(max(0, now_ms - one.record.post.received_ms) / 1000)

    async def _tell_desk(self, records: Sequence[Record], now_ms: int) -> None:
        # Together: they share what the desk writes to the disk.
        telling = asyncio.gather(
            *(self._desk.record_stored(record, now_ms) for record in records), return_exceptions=True
        )
        failed: list[BaseException]
        try:
            async with asyncio.timeout(DESK_TIMEOUT_S):
                failed = [found for found in await telling if found is not None]
        except TimeoutError as late:
            failed = [late] * len(records)
        # A fault of the alerts must not keep posts in the queue.
        for fault in failed:
            self._metrics.tries.labels("desk").inc()
            _log.error("the alert desk failed: %s", describe(fault))

    async def _finish(self, entries: Sequence[Entry]) -> None:
        """Take posts out of the queue, however long its Redis is gone: they would be analysed again otherwise."""
        pause_s = 0.05
        while entries:
            try:
                await self._queue.finish(entries)
                break
            except QueueAwayError:
                self._metrics.tries.labels("queue").inc()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._settings.max_wait_ms / 1000)
        for entry in entries:
            self._done(entry)
