"""Answers to questions that say the same in other words: an index in the cache instance, beside the answers.

It points to stored answers and holds none: what is flushed, evicted or has lapsed is not found through it either.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ssop_cache.answers import Answer, AnswerStore
from ssop_cache.core import neighbours, scripts
from ssop_cache.core.guards import Guard, read_facts
from ssop_cache.core.keys import Layout
from ssop_cache.core.neighbours import Neighbour, NeighbourError, check_vector, decode_neighbour, encode_neighbour
from ssop_cache.metrics import CacheMetrics
from ssop_cache.store import RedisStore
from ssop_chassis.errors import invalid_request

MAX_EMBEDDER_BYTES = 256


@dataclass(frozen=True, slots=True)
class SimilarAnswer:
    """An answer to a question that asks the same. `similarity` is the cosine of the questions' vectors."""

    cache_key: bytes
    answer: Answer
    similarity: float


class SimilarAnswers:
    """The index of all tenants; every method names the tenant. `wall_ms` is the time. `hits`, `refusals` count."""

    def __init__(
        self,
        store: RedisStore,
        answers: AnswerStore,
        layout: Layout,
        metrics: CacheMetrics,
        *,
        most: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._answers = answers
        self._layout = layout
        self._metrics = metrics
        self._most = most
        self._wall_ms = wall_ms
        self.hits = 0
        self.refusals: Counter[Guard] = Counter()

    async def put(
        self,
        tenant: str,
        scope_key: bytes,
        text: str,
        vector: bytes,
        *,
        cache_key: bytes,
        embedder: str,
        ttl_ms: int,
    ) -> bool:
        """Make an answer findable for `ttl_ms`; False where the question can't be compared. Raises as RedisStore."""
        asked = self._read(tenant, text, vector, embedder, cache_key=cache_key, expires_ms=self._wall_ms() + ttl_ms)
        if asked is None or not self._most:
            return False
        name = neighbours.name_of(scope_key, cache_key)
        keys = self._layout.of_tenant(tenant)
        await self._store.run(
            neighbours.put_similar(keys, name, encode_neighbour(asked), ttl_ms=ttl_ms, most=self._most)
        )
        return True

    async def find(
        self,
        tenant: str,
        scope_key: bytes,
        text: str,
        vector: bytes,
        *,
        embedder: str,
        max_age_ms: int,
        min_similarity: float,
    ) -> SimilarAnswer | None:
        """The answer to the nearest question that asks the same; None where there is none. Raises as RedisStore."""
        asked = self._read(tenant, text, vector, embedder)
        if asked is None:
            return None
        keys = self._layout.of_tenant(tenant)
        now_ms, *records = await self._store.run(neighbours.find_similar(keys, scope_key))
        known = [found for record in records if (found := self._decode(scripts.data(record))) is not None]
        comparison = neighbours.compare(asked, known, scripts.number(now_ms), min_similarity)
        self.refusals.update(comparison.refusals)
        for guard, count in comparison.refusals.items():
            self._metrics.similar_refusals.labels(guard.value).inc(count)
        for near in comparison.same:
            answer = await self._answers.find(tenant, near.cache_key)
            if answer is None:
                name = neighbours.name_of(scope_key, near.cache_key)
                await self._store.run(neighbours.drop_similar(keys, name))
            elif not max_age_ms or answer.age_ms <= max_age_ms:
                self.hits += 1
                self._metrics.similar_hits.inc()
                return SimilarAnswer(near.cache_key, answer, near.similarity)
        return None

    def _read(
        self,
        tenant: str,
        text: str,
        vector: bytes,
        embedder: str,
        *,
        cache_key: bytes = bytes(32),
        expires_ms: int = 0,
    ) -> Neighbour | None:
        if not 0 < len(embedder.encode()) <= MAX_EMBEDDER_BYTES:
            raise invalid_request(("embedder", f"must have 1 to {MAX_EMBEDDER_BYTES} bytes"))
        try:
            check_vector(vector)
        except NeighbourError as error:
            raise invalid_request(("vector", str(error))) from error
        # So that the facts of two tenants can't be compared by anybody.
        secret = hashlib.sha256(b"ssop.facts.v2\0" + tenant.encode()).digest()
        facts = read_facts(text, secret)
        return Neighbour(cache_key, expires_ms, embedder, facts, vector) if facts is not None else None

    def _decode(self, data: bytes) -> Neighbour | None:
        try:
            return decode_neighbour(data)
        except NeighbourError:
            self._metrics.unusable.inc()
            return None
