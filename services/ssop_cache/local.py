# cython: annotation_typing=False
"""The cache level on this host: answers in memory, kept on disk, told of changes by the log in the state instance.

Reads and writes touch memory only. One task follows the log and one thread writes the folder, so neither Redis nor the
disk can hold a request up. A host that hears of changes serves at once; one that doesn't serves only what Redis can't
answer, and only for a while.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ssop_cache.core.changes import MOST_LOGGED, Change, Cursor, follow, log_changes, read_changes
from ssop_cache.core.flushes import EVERYTHING, Epoch, parse_epoch, read_epoch, was_flushed
from ssop_cache.core.local import LocalAnswer, LocalAnswers, Name
from ssop_cache.local_disk import Disk, DiskError
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError

_PENDING: Final = 2_000
_MOST_DIRTY: Final = 10_000
"""Names of entries that wait to be written, where fewer entries are held than half of it."""
_BATCH_BYTES: Final = 4 << 20
_REPEAT_S: Final = 5.0
"""After a fault of the disk, and how often a cursor is written that is all that has changed."""
_CLOSE_S: Final = 5.0
_STALE_S: Final = 1.0
"""After so long without a look at the log, or five intervals, this host does not hear of changes."""
_IDLE_S: Final = 2.0
"""After so long without a look-up this host looks at the log seldom, and a look-up has it look first."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class LocalLevel:
    """Answers of all tenants on this host. `start` begins to follow the log; `close` ends it. `wall_ms` is the time."""

    def __init__(
        self,
        state: RedisStore,
        cache: RedisStore,
        metrics: CacheMetrics,
        *,
        max_bytes: int,
        directory: Path | None,
        sync_interval_ms: int,
        unsynced_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.answers = LocalAnswers(max_bytes)
        self.changes = 0
        """Changes that were applied."""
        self._state = state
        self._cache = cache
        self._metrics = metrics
        self._directory = directory
        self._interval_s = sync_interval_ms / 1000
        self._unsynced_ms = unsynced_ms
        self._wall_ms = wall_ms
        self._cursor = Cursor()
        self._epoch: Epoch | None = None
        self._synced_s: float | None = None
        self._stale_s = max(_STALE_S, 5 * self._interval_s)
        self._rest_s = self._stale_s / 2
        self._is_used = True
        self._unused_s = 0.0
        self._woken = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._written = Cursor()
        self._written_s = 0.0
        self._pending: OrderedDict[Name, int] = OrderedDict()
        self._dirty: dict[Name, None] = {}
        self._is_all_dirty = False
        self._disk: Disk | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache-disk")
        self._tasks: list[asyncio.Task[None]] = []
        metrics.local_bytes.set_function(lambda: self.answers.size_bytes)
        metrics.local_answers.set_function(lambda: len(self.answers))
        metrics.is_local_synced.set_function(lambda: self.is_synced)
        metrics.is_local_kept.set_function(lambda: self.is_kept)

    @property
    def is_kept(self) -> bool:
        """What is held survives a restart."""
        return self._disk is not None

    @property
    def is_synced(self) -> bool:
        """This host hears of changes: it has read the log to its end just now."""
        return self._synced_s is not None and time.monotonic() - self._synced_s < self._stale_s

    def start(self) -> None:
        """Read the folder, then follow the log."""
        self._tasks = [asyncio.ensure_future(self._run())]

    async def close(self) -> None:
        """Stop following; what is held is on disk then, and others know what was stored here.

        Unless the disk hangs, or the state instance does not answer.
        """
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._caught_up.set()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._tell_last()
                await self._save()
                if self._disk is not None:
                    await self._on_thread(self._disk.close)
        except TimeoutError:
            _log.error("the folder of stored answers could not be closed in time; it is read again as far as it goes")
        self._disk = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def is_resting(self) -> bool:
        """Nobody has looked anything up for a while, and changes are heard of late: `catch_up` comes first."""
        return not self._caught_up.is_set()

    async def catch_up(self) -> None:
        """Hear what has changed, if that is to be had soon; whether it was, `is_synced` says."""
        # Before it is looked at, so that the next look-up finds no host at rest.
        self._is_used = True
        self._woken.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rest_s):
                await self._caught_up.wait()

    def find_all(self, wanted: Sequence[tuple[Name, int]]) -> Sequence[LocalAnswer | None]:
        """For each name and greatest age in milliseconds the answer, where this host hears of changes."""
        self._is_used = True
        if not self.is_synced:
            return [None] * len(wanted)
        answers, now_ms = self.answers, self._wall_ms()
        return [answers.find(name, now_ms, max_age_ms) for name, max_age_ms in wanted]

    def find_unsynced(self, name: Name, max_age_ms: int) -> LocalAnswer | None:
        """The answer for when Redis can't say, if it was up to date not too long ago."""
        now_ms = self._wall_ms()
        if now_ms - self._cursor.synced_ms > self._unsynced_ms:
            return None
        return self.answers.find(name, now_ms, max_age_ms)

    def wall_ms(self) -> int:
        """The time by which answers are stored and lapse here."""
        return self._wall_ms()

    def put(self, name: Name, answer: LocalAnswer, changes: int, is_newer: bool) -> None:
        """Keep an answer. `is_newer`: it was made now in place of another, which other hosts are told to forget.

        `changes`: the number of them before Redis was asked. Where more are known by now, they may be about this
        answer, and it is left to Redis.
        """
        gone = None
        if changes == self.changes:
            gone = self.answers.put(name, answer)
        elif self.answers.drop(name, answer.fence):
            self._mark((name,))
        if gone is not None:
            self._mark((name,))
        if gone:
            self._metrics.local_evictions.inc(len(gone))
            self._mark(gone)
        if is_newer:
            self._is_used = True
            self._woken.set()
            self._pending[name] = answer.fence
            if len(self._pending) > _PENDING:
                # Another host may then replay its older answer until that lapses.
                self._pending.popitem(last=False)
                self._metrics.local_faults.labels("untold").inc()

    def apply(self, change: Change) -> None:
        """Forget what a change says."""
        if change == EVERYTHING:
            self._forget_all()
            return
        self.changes += 1
        if change.cache_key:
            name = (change.tag, change.cache_key)
            if self.answers.drop(name, change.fence):
                self._mark((name,))
        else:
            self._mark(self.answers.flush(change.tag, change.fence))

    async def tell(self, *changes: Change) -> None:
        """Tell every host of changes. Raises STORE_UNAVAILABLE."""
        await self._state.run(log_changes(changes, secrets.token_bytes(16)))

    def _forget_all(self) -> None:
        self.changes += 1
        self.answers.clear()
        self._mark_all()

    def _mark(self, names: Iterable[Name]) -> None:
        if self._disk is None or self._is_all_dirty:
            return
        for name in names:
            self._dirty[name] = None
        # A disk that hangs must not fill the memory with names; then everything is written anew.
        if len(self._dirty) > _MOST_DIRTY and len(self._dirty) > 2 * len(self.answers):
            self._mark_all()

    def _mark_all(self) -> None:
        self._dirty.clear()
        self._is_all_dirty = self._disk is not None

    async def _run(self) -> None:
        await self._load()
        # Apart, so that a disk that hangs keeps this host from hearing nothing.
        self._tasks.append(asyncio.ensure_future(self._keep()))
        while True:
            await self._sync()
            await self._look_for_flush()
            self._caught_up.set()
            await self._pause()

    async def _pause(self) -> None:
        self._unused_s = 0.0 if self._is_used else self._unused_s + self._interval_s
        self._is_used = False
        if self._unused_s < _IDLE_S:
            await asyncio.sleep(self._interval_s)
            return
        self._woken.clear()
        self._caught_up.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rest_s):
                await self._woken.wait()

    async def _keep(self) -> None:
        while True:
            is_well = await self._save()
            await asyncio.sleep(self._rest_s if is_well else _REPEAT_S)

    async def _load(self) -> None:
        if self._directory is None:
            return
        directory = self._directory

        def open_disk() -> tuple[Disk, dict[Name, LocalAnswer], Cursor]:
            disk = Disk(directory, self._count_fault)
            found, cursor = disk.load(self._wall_ms())
            return disk, found, cursor

        try:
            disk, found, self._cursor = await self._on_thread(open_disk)
        except DiskError as error:
            self._count_fault("open")
            _log.error("stored answers of this host are kept in memory only: %s", error)
            return
        self._disk, self._written = disk, self._cursor
        self._mark(self.answers)
        for name, answer in found.items():
            gone = self.answers.put(name, answer)
            self._mark(gone if gone is not None else (name,))
        if found:
            _log.info("stored answers of this host are back", extra={"answers": len(found)})

    async def _sync(self) -> None:
        try:
            await self._tell_pending()
            while True:
                news = follow(self._cursor, await self._state.run(read_changes(self._cursor)), self._wall_ms())
                if self._cursor == Cursor() and self.answers:
                    # Taken from Redis while nothing was heard; what has changed since is not in the news.
                    self._forget_all()
                if news.has_gap:
                    _log.warning("changes of stored answers were missed; this host forgets its answers")
                    self._count_fault("gap")
                    self._forget_all()
                for change in news.changes:
                    self.apply(change)
                self._cursor = news.cursor
                if news.is_end and not news.cursor.epoch:
                    # One that has a name is missed when it is lost, though nothing was written to it yet.
                    await self.tell()
                elif news.is_end:
                    self._synced_s = time.monotonic()
                    return
        except MeshError as error:
            if self._synced_s is not None:
                _log.warning("this host does not hear of changes", extra={"reason": error.reason_name})
            self._synced_s = None

    async def _tell_pending(self) -> None:
        """Tell every host of the answers that were stored here. Raises STORE_UNAVAILABLE."""
        while self._pending:
            told = dict(islice(self._pending.items(), MOST_LOGGED))
            await self.tell(*(Change(tag, key, fence) for (tag, key), fence in told.items()))
            for name, fence in told.items():
                if self._pending.get(name) == fence:
                    del self._pending[name]

    async def _tell_last(self) -> None:
        try:
            await self._tell_pending()
        except MeshError as error:
            # Other hosts may then replay their older answers until those lapse.
            self._metrics.local_faults.labels("untold").inc(len(self._pending))
            _log.warning("other hosts were not told of the last answers", extra={"reason": error.reason_name})

    async def _look_for_flush(self) -> None:
        """Forget all where the cache instance was flushed by itself, and tell those who are not here to see it."""
        try:
            epoch = parse_epoch(await self._cache.run(read_epoch(secrets.token_bytes(16))))
            if was_flushed(self._epoch, epoch):
                _log.warning("the cache instance was flushed; this host forgets its answers")
                self._count_fault("flush")
                self._forget_all()
                if epoch.is_first:
                    await self.tell(EVERYTHING)
        except MeshError as error:
            # It is looked at again; what was flushed meanwhile has another mark then too.
            _log.debug("the cache instance was not looked at", extra={"reason": error.reason_name})
            return
        self._epoch = epoch

    async def _save(self) -> bool:
        """Bring the folder up to date; False after a fault.

        The cursor goes with the last batch: never ahead of what it describes.
        """
        disk = self._disk
        now_s = time.monotonic()
        is_due = self._cursor != self._written and now_s - self._written_s > _REPEAT_S
        if disk is None or not (self._dirty or self._is_all_dirty or is_due):
            return True
        cursor, is_all = self._cursor, self._is_all_dirty
        names = list(self.answers) if is_all else list(self._dirty)
        self._dirty, self._is_all_dirty = {}, False
        try:
            while True:
                batch: dict[Name, LocalAnswer | None] = {}
                size = 0
                while names and size < _BATCH_BYTES:
                    name = names.pop()
                    batch[name] = found = self.answers.peek(name)
                    size += found.size_bytes if found is not None else 64
                is_last = not names
                # Between the batches of a whole copy there is no cursor that describes the folder.
                between = Cursor() if is_all else self._written
                write = partial(disk.write, batch, cursor if is_last else between, is_all=is_all)
                await self._on_thread(write)
                if is_last:
                    break
                if is_all:
                    self._written = Cursor()
                is_all = False
        except asyncio.CancelledError:
            # Batches that were not written must not be missing below a cursor that is.
            self._mark_all()
            raise
        except DiskError as error:
            self._count_fault("write")
            _log.error("stored answers can't be kept: %s", error)
            self._mark_all()
            return False
        self._written, self._written_s = cursor, now_s
        return True

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _count_fault(self, kind: str) -> None:
        self._metrics.local_faults.labels(kind).inc()
