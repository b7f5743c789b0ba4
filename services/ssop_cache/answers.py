# cython: annotation_typing=False
"""Stored answers at both levels: on this host, and in the cache instance. One key for both."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple, cast

from ssop.v1.mesh_pb2 import CacheLevel
from ssop_cache.core import scripts
from ssop_cache.core.changes import Change, Cursor, read_changes
from ssop_cache.core.keys import Layout, TenantKeys
from ssop_cache.core.local import LocalAnswer
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_head
from ssop_cache.core.scripts import Reply, Stored
from ssop_cache.local import LocalLevel
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError

_REPLACED: int = 2
_NOWHERE = CacheLevel.CACHE_LEVEL_UNSPECIFIED
"""Under this a look-up counts that found nothing."""
_FOREVER: int = 2**53
"""A fence above all others."""


class Answer(NamedTuple):
    """An answer that was found, and at which level."""

    chunk: bytes
    model: str
    age_ms: int
    level: CacheLevel.ValueType = CacheLevel.CACHE_LEVEL_SHARED


Wanted = tuple[bytes, int]
"""An answer that is looked for: its key, and how old it may be in milliseconds; 0 is no limit."""


class Fresh:
    """An answer that is to be stored for `ttl_ms`."""

    __slots__ = ("cache_key", "chunk", "fence", "model", "ttl_ms")

    def __init__(self, cache_key: bytes, fence: int, chunk: bytes, model: str, ttl_ms: int) -> None:
        self.cache_key = cache_key
        self.fence = fence
        self.chunk = chunk
        self.model = model
        self.ttl_ms = ttl_ms


_Asking = Coroutine[None, None, Sequence[Answer | MeshError | None]]


class AnswerStore:
    """Reads and writes the answers of all tenants; every method names the tenant. `local` None: no level on the host.

    `hits` counts by level.
    """

    def __init__(
        self,
        store: RedisStore,
        layout: Layout,
        metrics: CacheMetrics,
        *,
        state: RedisStore,
        local: LocalLevel | None = None,
    ) -> None:
        self._store = store
        self._state = state
        self._layout = layout
        self._metrics = metrics
        self.local = local
        self.hits: Counter[CacheLevel.ValueType] = Counter()
        self._asking: asyncio.Task[Sequence[Answer | MeshError | None]] | None = None

    async def find(self, tenant: str, cache_key: bytes, *, max_age_ms: int = 0) -> Answer | None:
        """The answer, or None; a record that is not this tenant's and these versions' is none. Raises as RedisStore."""
        (answer,) = await self.find_all(tenant, ((cache_key, max_age_ms),))
        if isinstance(answer, MeshError):
            raise answer
        return answer

    async def find_all(
        self, tenant: str, wanted: Sequence[Wanted], *, timeout_s: float | None = None
    ) -> Sequence[Answer | MeshError | None]:
        """For each, in their order, what `find` says, or the error that it raises."""
        if self.local is not None and self.local.is_resting:
            await self.local.catch_up()
        answers: list[Answer | MeshError | None] = [*self._find_local(tenant, wanted)]
        missing = [at for at, answer in enumerate(answers) if answer is None]
        kept = self._find_unsynced(tenant, wanted, missing)
        for places in (list(kept), [at for at in missing if at not in kept] if kept else missing):
            if not places:
                continue
            asking = self._find_shared(tenant, [wanted[at] for at in places], timeout_s)
            try:
                found = await (self._prefer(asking, list(kept.values())) if places[0] in kept else asking)
            except MeshError as error:
                found = [error] * len(places)
            for at, answer in zip(places, found, strict=True):
                answers[at] = answer
        if nothing := answers.count(None):
            self.hits[_NOWHERE] += nothing
        if nothing < len(answers):
            self._count_hits([answer.level for answer in answers if isinstance(answer, Answer)])
        return answers

    def _count_hits(self, levels: Sequence[CacheLevel.ValueType]) -> None:
        for level, count in Counter(levels).items():
            self.hits[level] += count
            self._metrics.hits.labels(CacheLevel.Name(level).removeprefix("CACHE_LEVEL_").lower()).inc(count)

    async def _prefer(self, asking: _Asking, kept: Sequence[Answer]) -> Sequence[Answer | MeshError | None]:
        """What Redis has, if it says so as soon as one that is well; else what the host has kept.

        One call's question then goes on beside it, so that silence opens the circuit and nobody waits for that.
        """
        if self._asking is not None:
            asking.close()
            return kept
        task = self._asking = asyncio.ensure_future(asking)
        task.add_done_callback(self._forget_asking)
        try:
            async with self._store.soon():
                return await asyncio.shield(task)
        except (TimeoutError, MeshError):
            return kept

    def _forget_asking(self, task: "asyncio.Task[Sequence[Answer | MeshError | None]]") -> None:
        self._asking = None
        if not task.cancelled():
            # What went wrong is in the store's log and metrics.
            task.exception()

    async def put_all(self, tenant: str, fresh: Sequence[Fresh]) -> Sequence[bool]:
        """Store answers; False where a later generation has stored one, or the tenant's answers were flushed since.

        Raises as RedisStore.
        """
        keys = self._layout.of_tenant(tenant)
        stored = _write(fresh, tenant, self._layout)
        call = scripts.put_answers(keys, stored, nonce=secrets.token_bytes(16))
        changes = self._changes
        outcomes = await self._store.run(call)
        if self.local is not None:
            _keep(self.local, keys.tag, stored, outcomes, changes)
        return [bool(outcome) for outcome in outcomes]

    async def drop(self, tenant: str, cache_key: bytes, *, before: int = _FOREVER) -> None:
        """Delete an answer of a generation before that fence at every level and on every host. Raises as RedisStore."""
        keys = self._layout.of_tenant(tenant)
        await self._store.run(scripts.drop_answer(keys, cache_key, before))
        await self._spread(Change(keys.tag, cache_key, before))

    async def flush(self, tenant: str) -> None:
        """Delete all answers of a tenant at every level and on every host. Raises as RedisStore.

        Redis forgets first: who reads it after the change is known can't bring an old answer back.
        """
        keys = self._layout.of_tenant(tenant)
        # By the clock that fences are made from.
        floor = scripts.number((await self._state.run(read_changes(Cursor(last=_FOREVER))))[0])
        await self._store.run(scripts.flush_answers(keys, floor, secrets.token_bytes(16)))
        await self._spread(Change(keys.tag, b"", floor))

    async def _spread(self, change: Change) -> None:
        if self.local is None:
            return
        self.local.apply(change)
        await self.local.tell(change)

    @property
    def _changes(self) -> int:
        return self.local.changes if self.local is not None else 0

    def _find_local(self, tenant: str, wanted: Sequence[Wanted]) -> Sequence[Answer | None]:
        """What the host has of each, where it hears of changes."""
        local = self.local
        if local is None:
            return [None] * len(wanted)
        tag = self._layout.of_tenant(tenant).tag
        kept = local.find_all([((tag, cache_key), max_age_ms) for cache_key, max_age_ms in wanted])
        return [self._read(tenant, found, local) if found is not None else None for found in kept]

    def _find_unsynced(self, tenant: str, wanted: Sequence[Wanted], places: Sequence[int]) -> dict[int, Answer]:
        """What the host has of those at the places, where it hears of no changes."""
        local = self.local
        if local is None or local.is_synced or not places:
            return {}
        tag = self._layout.of_tenant(tenant).tag
        kept = {}
        for at in places:
            cache_key, max_age_ms = wanted[at]
            found = local.find_unsynced((tag, cache_key), max_age_ms)
            answer = self._read(tenant, found, local) if found is not None else None
            if answer is not None:
                kept[at] = answer
        return kept

    async def _find_shared(
        self, tenant: str, wanted: Sequence[Wanted], timeout_s: float | None
    ) -> Sequence[Answer | MeshError | None]:
        keys = self._layout.of_tenant(tenant)
        changes = self._changes
        replies = cast("list[Reply | None]", await self._store.run(scripts.find_answers(keys, wanted), timeout_s))
        return [
            self._take_shared(tenant, keys, cache_key, reply, changes) if reply else None
            for (cache_key, _), reply in zip(wanted, replies, strict=True)
        ]

    def _take_shared(
        self, tenant: str, keys: TenantKeys, cache_key: bytes, reply: Reply, changes: int
    ) -> Answer | None:
        """One that the cache instance has; the host keeps it, too."""
        age_ms, fence, ttl_ms, start, value = reply
        age_ms, fence, ttl_ms = scripts.number(age_ms), scripts.number(fence), scripts.number(ttl_ms)
        data = scripts.data(value)[scripts.number(start) :]
        record = self._decode(tenant, data)
        if record is None:
            return None
        if self.local is not None and ttl_ms > 0:
            now_ms = self.local.wall_ms()
            answer = LocalAnswer(fence, now_ms - age_ms, now_ms + ttl_ms, data)
            self.local.put((keys.tag, cache_key), answer, changes, False)
        return Answer(record.chunk, record.model, age_ms)

    def _read(self, tenant: str, found: LocalAnswer, local: LocalLevel) -> Answer | None:
        record = self._decode(tenant, found.record)
        if record is None:
            return None
        age_ms = max(0, local.wall_ms() - found.stored_ms)
        return Answer(record.chunk, record.model, age_ms, CacheLevel.CACHE_LEVEL_LOCAL)

    def _decode(self, tenant: str, data: bytes) -> AnswerRecord | None:
        try:
            record = decode_record(data)
        except RecordError:
            self._metrics.unusable.inc()
            return None
        versions = (record.wire_version, record.codec_version)
        if record.tenant != tenant or versions != (self._layout.wire_version, self._layout.codec_version):
            self._metrics.unusable.inc()
            return None
        return record


def _write(fresh: Sequence[Fresh], tenant: str, layout: Layout) -> list[Stored]:
    """The answers with their records."""
    writers: dict[str, Callable[[bytes], bytes]] = {}
    stored = []
    for one in fresh:
        write = writers.get(one.model)
        if write is None:
            write = encode_head(tenant, layout.wire_version, layout.codec_version, one.model)
            writers[one.model] = write
        stored.append((one.cache_key, one.fence, write(one.chunk), one.ttl_ms))
    return stored


def _keep(local: LocalLevel, tag: str, stored: Sequence[Stored], outcomes: Reply, changes: int) -> None:
    """The host keeps what Redis took."""
    now_ms = local.wall_ms()
    for (cache_key, fence, record, ttl_ms), outcome in zip(stored, outcomes, strict=True):
        if outcome:
            answer = LocalAnswer(fence, now_ms, now_ms + ttl_ms, record)
            local.put((tag, cache_key), answer, changes, outcome == _REPLACED)
