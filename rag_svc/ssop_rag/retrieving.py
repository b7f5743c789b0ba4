"""Answers queries: embeds them unless that was done before, and searches unless a prefetch has what is needed."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ssop_rag.core.memo import QueryMemo
from ssop_rag.core.model import Answer, Candidates, Matrix, Query, Vector
from ssop_rag.core.prefetch import Entry, Use
from ssop_rag.core.ranking import RankerChoice
from ssop_rag.embedder import Embedder
from ssop_rag.observations import RagMetrics
from ssop_rag.pool import Priority, WorkPool
from ssop_rag.prefetcher import Clocks, Prefetcher
from ssop_rag.store import VectorStore


@dataclass(frozen=True, slots=True)
class Search:
    """A retrieval whose fields were checked. `query` is normalised; `names` are in order, without repeats."""

    tenant: str
    request_id: str
    names: tuple[str, ...]
    query: str
    top_k: int


@dataclass(frozen=True, slots=True)
class Retrieved:
    """An answer, what of a prefetch was used for it (None: nothing), and how long that had been at work."""

    answer: Answer
    use: Use | None
    overlap_ms: int


@dataclass(frozen=True, slots=True)
class Retriever:
    """The read side of the service. `is_lossy`: candidates of a prefix may answer, which is then said."""

    store: VectorStore
    embedder: Embedder
    pool: WorkPool
    prefetcher: Prefetcher
    memo: QueryMemo
    metrics: RagMetrics
    clocks: Clocks
    rankers: RankerChoice
    is_lossy: bool

    async def retrieve(self, search: Search) -> Retrieved:
        """The answer of a plain search, whether or not a prefetch helped, unless `is_lossy`."""
        came_ms = self.clocks.monotonic_ms()
        reading: asyncio.Future[Query] | None = None
        if self.is_lossy and self.prefetcher.has_other(search.tenant, search.request_id, search.query):
            # Its candidates may still be on their way: the query is embedded meanwhile.
            reading = asyncio.ensure_future(self._read(search))
        try:
            entry = await self.prefetcher.claim(
                search.tenant, search.request_id, search.names, search.query, is_lossy=self.is_lossy
            )
            if entry is None:
                query = await (reading or self._read(search))
                return Retrieved(await self._search(search, query), None, 0)
            return await self._use(search, entry, reading, came_ms)
        finally:
            if reading is not None:
                reading.cancel()

    async def _use(
        self, search: Search, entry: Entry, reading: "asyncio.Future[Query] | None", came_ms: int
    ) -> Retrieved:
        """An answer for which a prefetch has been claimed."""
        waited_ms = self.clocks.monotonic_ms() - came_ms
        use: Use | None = None
        try:
            answer, use = await self._draw(search, entry, reading)
        finally:
            if use is not None:
                self.prefetcher.use(entry, use, came_ms=came_ms, waited_ms=waited_ms)
            else:
                self.prefetcher.miss(entry)
        return Retrieved(answer, use, entry.overlap_ms(came_ms) if use is not None else 0)

    async def _read(self, search: Search) -> Query:
        """The query, with its vector where a ranker compares vectors."""
        if not self.rankers.needs_vector(search.names):
            return Query(search.query, None)
        started_s = time.perf_counter()
        vector = self.memo.get(search.tenant, search.query)
        self.metrics.query_vector(is_known=vector is not None)
        if vector is None:
            vector = await self._embed(search.tenant, search.query, Priority.QUERY)
        self.metrics.stage("embed", time.perf_counter() - started_s)
        return Query(search.query, vector)

    async def _embed(self, tenant: str, text: str, priority: Priority) -> Vector:
        rows = await self.pool.run(priority, lambda: self.embedder.embed_query([text]))
        vector: Vector = rows[0]
        self.memo.put(tenant, text, vector)
        return vector

    async def embed(self, texts: Sequence[str], *, is_urgent: bool) -> Matrix:
        """Vectors of questions that are not searched for here; nothing of them is kept. Raises OVERLOADED."""
        priority = Priority.QUERY if is_urgent else Priority.PREFETCH
        return await self.pool.run(priority, lambda: self.embedder.embed_query(texts))

    async def warm(self, tenant: str, query: str) -> bool:
        """Keep the vector of a normalised query that is expected; False when it is kept already, or can't be."""
        if self.memo.size == 0 or self.memo.get(tenant, query) is not None:
            return False
        await self._embed(tenant, query, Priority.PREFETCH)
        return True

    async def _draw(
        self, search: Search, entry: Entry, reading: "asyncio.Future[Query] | None"
    ) -> tuple[Answer, Use | None]:
        """An answer with the help of a prefetch, and what of it was used."""
        result = entry.result
        if result is None:  # never: what is claimed has ended
            return await self._search(search, await self._read(search)), None
        is_whole = entry.text == search.query
        query = Query(search.query, result.vector) if is_whole else await (reading or self._read(search))
        if is_whole and result.vector is not None:
            self.memo.put(search.tenant, search.query, result.vector)
        started_s = time.perf_counter()
        answer = await self._within(search, result.candidates, query)
        use = Use.ANSWER if is_whole else Use.CANDIDATES
        if answer is None and self.is_lossy and len(result.candidates.hits) >= search.top_k:
            answer, use = await self._within(search, result.candidates, query, is_lossy=True), Use.LOSSY
        if answer is not None:
            self.metrics.stage("search", time.perf_counter() - started_s)
            return answer, use
        has_vector = is_whole and query.vector is not None
        return await self._search(search, query), Use.VECTOR if has_vector else None

    async def _within(
        self, search: Search, candidates: Candidates, query: Query, *, is_lossy: bool = False
    ) -> Answer | None:
        return await self.store.search_within(
            search.tenant, candidates, query, search.top_k, is_lossy=is_lossy, now_ms=self.clocks.wall_ms()
        )

    async def _search(self, search: Search, query: Query) -> Answer:
        started_s = time.perf_counter()
        answer = await self.store.search(search.tenant, search.names, query, search.top_k, now_ms=self.clocks.wall_ms())
        self.metrics.stage("search", time.perf_counter() - started_s)
        return answer
