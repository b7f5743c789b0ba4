"""Stored answers, in the cache instance."""

from dataclasses import dataclass

from ssop_cache.core import scripts
from ssop_cache.core.keys import Layout
from ssop_cache.core.records import AnswerRecord, RecordError, decode_record, encode_record
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was found."""

    chunk: bytes
    model: str
    age_ms: int


class AnswerStore:
    """Reads and writes the answers of all tenants; every method names the tenant."""

    def __init__(self, store: RedisStore, layout: Layout, metrics: CacheMetrics) -> None:
        self._store = store
        self._layout = layout
        self._metrics = metrics

    async def find(
        self, tenant: str, cache_key: bytes, *, max_age_ms: int = 0, timeout_s: float | None = None
    ) -> Answer | None:
        """The answer, or None; a record that is not this tenant's and these versions' is none. Raises as RedisStore."""
        call = scripts.find_answer(self._layout.of_tenant(tenant), cache_key, max_age_ms)
        reply = await self._store.run(call, timeout_s)
        if not reply:
            return None
        try:
            record = decode_record(scripts.data(reply[2]))
        except RecordError:
            self._metrics.unusable.inc()
            return None
        versions = (record.wire_version, record.codec_version)
        if record.tenant != tenant or versions != (self._layout.wire_version, self._layout.codec_version):
            self._metrics.unusable.inc()
            return None
        return Answer(record.chunk, record.model, scripts.number(reply[0]))

    async def put(self, tenant: str, cache_key: bytes, fence: int, chunk: bytes, *, model: str, ttl_ms: int) -> bool:
        """Store an answer; False when a later generation has stored one. Raises as RedisStore."""
        record = AnswerRecord(tenant, self._layout.wire_version, self._layout.codec_version, model, chunk)
        call = scripts.put_answer(self._layout.of_tenant(tenant), cache_key, fence, encode_record(record), ttl_ms)
        reply = await self._store.run(call)
        return bool(reply)
