"""Following a generation: one reader of its log for each process, however many followers it has here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.answers import AnswerStore
from ssop_cache.core import scripts
from ssop_cache.core.keys import Layout
from ssop_cache.store import RedisStore
from ssop_cache.wakes import Wakes
from ssop_chassis.errors import MeshError
from ssop_chassis.tallies import Gauge

POLL_S: Final = 0.1
"""How long a lost wake-up, or a leader that died, goes unseen at most."""


class Feed:
    """What is known of one generation. `chunks` only grows; `changed` is set anew with each change."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.is_ended = False
        self.error: MeshError | None = None
        self.followers = 0
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Nothing comes any more."""
        return self.is_ended or self.error is not None

    def tell(self) -> None:
        """Wake all who wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Until the next change."""
        await self._changed.wait()


class Feeds:
    """The generations that are followed here, at most `most`."""

    def __init__(
        self, state: RedisStore, answers: AnswerStore, layout: Layout, wakes: Wakes, *, most: int, gauge: Gauge
    ) -> None:
        self._state = state
        self._answers = answers
        self._layout = layout
        self._wakes = wakes
        self._most = most
        self._gauge = gauge
        self._feeds: dict[tuple[str, bytes], Feed] = {}

    @asynccontextmanager
    async def attach(self, tenant: str, cache_key: bytes) -> AsyncIterator[Feed]:
        """Follow a generation. Raises OVERLOADED when too many are followed here."""
        name = (tenant, cache_key)
        feed = self._feeds.get(name)
        if feed is None or feed.is_over:
            if len(self._feeds) >= self._most:
                raise MeshError(
                    ErrorReason.ERROR_REASON_OVERLOADED, "too many generations are followed here", retry_after_ms=100
                )
            feed = self._feeds[name] = Feed()
            feed.task = asyncio.ensure_future(self._run(name, feed))
            self._gauge.set(len(self._feeds))
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if feed.followers == 0:
                await self._drop(name, feed)

    async def close(self) -> None:
        """Stop reading."""
        for name, feed in list(self._feeds.items()):
            await self._drop(name, feed)

    async def _drop(self, name: tuple[str, bytes], feed: Feed) -> None:
        if self._feeds.get(name) is feed:
            del self._feeds[name]
            self._gauge.set(len(self._feeds))
        if feed.task is not None and not feed.task.done():
            feed.task.cancel()
            with suppress(asyncio.CancelledError):
                await feed.task

    async def _run(self, name: tuple[str, bytes], feed: Feed) -> None:
        tenant, cache_key = name
        channel = self._layout.of_tenant(tenant).channel(cache_key)
        woken = await self._wakes.watch(channel)
        try:
            await self._read(tenant, cache_key, feed, woken)
        except MeshError as error:
            feed.error = error
        finally:
            # A feed that is over makes room at once: who comes now looks afresh.
            if self._feeds.get(name) is feed:
                del self._feeds[name]
                self._gauge.set(len(self._feeds))
            feed.tell()
            await self._wakes.unwatch(channel, woken)

    async def _read(self, tenant: str, cache_key: bytes, feed: Feed, woken: asyncio.Event) -> None:
        keys = self._layout.of_tenant(tenant)
        outcome, _, fence_reply = await self._state.run(scripts.join(keys, cache_key))
        if outcome != b"open":
            await self._finish_from_answer(tenant, cache_key, feed, ErrorReason.ERROR_REASON_REQUEST_UNKNOWN)
            return
        fence, entries = scripts.number(fence_reply), 0
        while True:
            woken.clear()
            outcome, _, *chunks = await self._state.run(scripts.read_log(keys, cache_key, fence, entries))
            entries += len(chunks)
            if chunks:
                feed.chunks += [scripts.data(chunk) for chunk in chunks]
                feed.tell()
            match scripts.word(outcome):
                case "ended":
                    feed.is_ended = True
                    return
                case "done":
                    await self._finish_from_answer(tenant, cache_key, feed, ErrorReason.ERROR_REASON_LEASE_LOST)
                    return
                case "lost":
                    raise _lost(ErrorReason.ERROR_REASON_LEASE_LOST)
                case "open":
                    # Not `wait_for`, which in Python 3.11 forgets a cancel that comes along with the event.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(POLL_S):
                            await woken.wait()

    async def _finish_from_answer(
        self, tenant: str, cache_key: bytes, feed: Feed, otherwise: ErrorReason.ValueType
    ) -> None:
        """The log is gone because the answer is stored: the rest comes from there."""
        sent = b"".join(feed.chunks)
        answer = await self._answers.find(tenant, cache_key)
        if answer is None or not answer.chunk.startswith(sent):
            raise _lost(otherwise)
        feed.chunks.append(answer.chunk[len(sent) :])
        feed.is_ended = True


def _lost(reason: ErrorReason.ValueType) -> MeshError:
    if reason == ErrorReason.ERROR_REASON_LEASE_LOST:
        return MeshError(reason, "the leader of this generation is gone or gave up")
    return MeshError(reason, "nobody generates this answer")
