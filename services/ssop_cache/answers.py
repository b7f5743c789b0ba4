"""Stored answers at both levels: on this host, and in the cache instance. One key for both."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass

from ssop.v1.mesh_pb2 import CacheLevel
from ssop_cache.core import scripts
from ssop_cache.core.changes import Change, Cursor, read_changes
from ssop_cache.core.keys import Layout
from ssop_cache.core.local import LocalAnswer
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_record
from ssop_cache.local import LocalLevel
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import MeshError

_FOREVER: int = 2**53
"""A fence above all others."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was found, and at which level."""

    chunk: bytes
    model: str
    age_ms: int
    level: CacheLevel.ValueType = CacheLevel.CACHE_LEVEL_SHARED


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
        self._asking: asyncio.Task[Answer | None] | None = None

    async def find(
        self, tenant: str, cache_key: bytes, *, max_age_ms: int = 0, timeout_s: float | None = None
    ) -> Answer | None:
        """The answer, or None; a record that is not this tenant's and these versions' is none. Raises as RedisStore."""
        answer = self._find_local(tenant, cache_key, max_age_ms)
        if answer is None:
            kept = self._find_unsynced(tenant, cache_key, max_age_ms)
            asking = self._find_shared(tenant, cache_key, max_age_ms, timeout_s)
            answer = await (asking if kept is None else self._prefer(asking, kept))
        # A look-up that found nothing counts under UNSPECIFIED.
        level = answer.level if answer is not None else CacheLevel.CACHE_LEVEL_UNSPECIFIED
        self.hits[level] += 1
        if answer is not None:
            self._metrics.hits.labels(CacheLevel.Name(level).removeprefix("CACHE_LEVEL_").lower()).inc()
        return answer

    async def _prefer(self, asking: Coroutine[None, None, Answer | None], kept: Answer) -> Answer | None:
        """What Redis has, if it says so as soon as one that is well; else what the host has kept.

        One request's question then goes on beside it, so that silence opens the circuit and nobody waits for that.
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

    def _forget_asking(self, task: "asyncio.Task[Answer | None]") -> None:
        self._asking = None
        if not task.cancelled():
            # What went wrong is in the store's log and metrics.
            task.exception()

    async def put(self, tenant: str, cache_key: bytes, fence: int, chunk: bytes, *, model: str, ttl_ms: int) -> bool:
        """Store an answer; False when a later generation has stored one, or the tenant's answers were flushed since.

        Raises as RedisStore.
        """
        record = encode_record(
            AnswerRecord(tenant, self._layout.wire_version, self._layout.codec_version, model, chunk)
        )
        keys = self._layout.of_tenant(tenant)
        call = scripts.put_answer(keys, cache_key, fence, record, ttl_ms=ttl_ms, nonce=secrets.token_bytes(16))
        changes = self._changes
        is_stored = bool(await self._store.run(call))
        if is_stored and self.local is not None:
            self.local.put(
                (keys.tag, cache_key), record, fence=fence, age_ms=0, ttl_ms=ttl_ms, is_new=True, changes=changes
            )
        return is_stored

    async def drop(self, tenant: str, cache_key: bytes) -> None:
        """Delete an answer at every level and on every host. Raises as RedisStore."""
        keys = self._layout.of_tenant(tenant)
        await self._store.run(scripts.drop_answer(keys, cache_key))
        await self._spread(Change(keys.tag, cache_key, _FOREVER))

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

    def _find_local(self, tenant: str, cache_key: bytes, max_age_ms: int) -> Answer | None:
        """What the host has, where it hears of changes."""
        local = self.local
        if local is None:
            return None
        found = local.find((self._layout.of_tenant(tenant).tag, cache_key), max_age_ms)
        return self._read(tenant, found, local) if found is not None else None

    def _find_unsynced(self, tenant: str, cache_key: bytes, max_age_ms: int) -> Answer | None:
        """What the host has, where it hears of none."""
        local = self.local
        if local is None or local.is_synced:
            return None
        found = local.find_unsynced((self._layout.of_tenant(tenant).tag, cache_key), max_age_ms)
        return self._read(tenant, found, local) if found is not None else None

    async def _find_shared(
        self, tenant: str, cache_key: bytes, max_age_ms: int, timeout_s: float | None
    ) -> Answer | None:
        keys = self._layout.of_tenant(tenant)
        changes = self._changes
        reply = await self._store.run(scripts.find_answer(keys, cache_key, max_age_ms), timeout_s)
        if not reply:
            return None
        age_ms, fence, data, ttl_ms = (
            scripts.number(reply[0]),
            scripts.number(reply[1]),
            scripts.data(reply[2]),
            reply[3],
        )
        record = self._decode(tenant, data)
        if record is None:
            return None
        if self.local is not None and scripts.number(ttl_ms) > 0:
            self.local.put(
                (keys.tag, cache_key),
                data,
                fence=fence,
                age_ms=age_ms,
                ttl_ms=scripts.number(ttl_ms),
                is_new=False,
                changes=changes,
            )
        return Answer(record.chunk, record.model, age_ms)

    def _read(self, tenant: str, found: LocalAnswer, local: LocalLevel) -> Answer | None:
        record = self._decode(tenant, found.record)
        if record is None:
            return None
        return Answer(record.chunk, record.model, local.age_ms(found), CacheLevel.CACHE_LEVEL_LOCAL)

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
