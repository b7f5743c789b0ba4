"""The worker's loop, with a queue and a sink in memory."""

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry

from helpers.opinion import GOOD, TENANT, NotingDesk, make_settings, posts
from ssop_opinion.core.payload import write_payload
from ssop_opinion.core.post import Post
from ssop_opinion.core.record import Analysis, Record
from ssop_opinion.entries import Entry
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.ports import ItemFault, MeshAwayError, OnField, Page, Query
from ssop_opinion.queue import PostQueue
from ssop_opinion.worker import Worker


class MemoryQueue:
    """The stream of one tenant. Where that is left alone a read ends at once, as that of no stream does."""

    def __init__(self, made: Sequence[Post]) -> None:
        self.lengths = {TENANT: len(made)}
        self.is_shared = False
        self.finished = asyncio.Event()
        self._entries = [Entry(f"{number}-0", post, write_payload(post), 1, TENANT) for number, post in enumerate(made)]
        self._idle_reads = 0

    async def read(self, count: int, block_ms: int, *, without: Collection[str] = ()) -> list[Entry]:
        if TENANT in without:
            self._idle_reads += 1
            assert self._idle_reads < 1_000, "the worker reads nothing, again and again, and lets nobody else run"
            return []
        self._idle_reads = 0
        found, self._entries = self._entries[:count], self._entries[count:]
        await asyncio.sleep(0 if found else block_ms / 100_000)
        return found

    async def finish(self, entries: Sequence[Entry]) -> None:
        self.finished.set()

    async def claim(self, count: int) -> list[Entry]:
        return []

    async def keep(self, entries: Iterable[Entry]) -> None:
        pass

    async def refresh(self) -> None:
        pass

    async def release(self, entries: Iterable[Entry]) -> None:
        pass

    async def sizes(self) -> tuple[int, int]:
        return 0, 0


class MemorySink:
    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        return ()

    async def find(self, query: Query) -> Page:
        return Page((), 0)

    async def close(self) -> None:
        pass


class RefusedOnce:
    """An analyst of a mesh that refuses the tenant at first."""

    def __init__(self) -> None:
        self.tries = 0

    async def analyse(self, post: Post, on_field: OnField) -> Analysis:
        self.tries += 1
        if self.tries == 1:
            raise MeshAwayError("over its limit", 0.01, is_of_tenant=True)
        # The mesh takes its time.
        await asyncio.sleep(0.01)
        return GOOD


async def test_the_only_tenant_is_served_after_the_mesh_refused_its_only_post(tmp_path: Path) -> None:
    queue = MemoryQueue(posts(1))
    worker = Worker(
        make_settings(tmp_path, "redis://nowhere", claim_ms=600_000),
        queue=cast("PostQueue", queue),
        analyst=RefusedOnce(),
        sink=MemorySink(),
        desk=NotingDesk(),
        metrics=OpinionMetrics(CollectorRegistry()),
        now_ms=lambda: 0,
        rng=random.Random(1),
    )
    stop = asyncio.Event()
    running = asyncio.ensure_future(worker.run(stop, 60))
    finished = asyncio.ensure_future(queue.finished.wait())
    waiting: set[asyncio.Future[Any]] = {running, finished}
    await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    finished.cancel()
    await running
    assert queue.finished.is_set()
