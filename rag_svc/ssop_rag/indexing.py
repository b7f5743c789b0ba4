"""From documents as they come to documents with passages and vectors."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ssop.v1 import rag_pb2
from ssop_rag.core.chunking import Limits, split
from ssop_rag.core.fingerprint import fingerprint
from ssop_rag.core.model import Document, Matrix, Vector
from ssop_rag.core.request import refuse
from ssop_rag.embedder import Embedder
from ssop_rag.pool import Priority, WorkPool


@dataclass(frozen=True, slots=True)
class Cut:
    """A document that can be indexed, its passages, and the name of its content."""

    document: rag_pb2.IndexDocument
    passages: list[str]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Sorted:
    """Documents that can be indexed, with their passages, and those that can't, with the reason."""

    taken: list[Cut] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    @property
    def passages(self) -> int:
        """Passages of all that can be indexed."""
        return sum(len(cut.passages) for cut in self.taken)


@dataclass(frozen=True, slots=True)
class Indexer:
    """Cuts and embeds documents on the pool, one passage at a time, so that queries come between."""

    embedder: Embedder
    pool: WorkPool
    threads: int
    limits: Limits
    max_document_bytes: int

    async def sort(self, documents: Sequence[rag_pb2.IndexDocument], now_ms: int) -> Sorted:
        """Judge and cut the documents, on a thread."""
        return await self.pool.run(Priority.INDEX, lambda: self._sort(documents, now_ms))

    def _sort(self, documents: Sequence[rag_pb2.IndexDocument], now_ms: int) -> Sorted:
        result = Sorted()
        seen: set[str] = set()
        for document in documents:
            reason = refuse(document, max_document_bytes=self.max_document_bytes, now_ms=now_ms)
            if document.document_id in seen:
                reason = "the request has another document with this id"
            seen.add(document.document_id)
            if reason is None:
                passages = split(document.text, document.title, self.limits)
                result.taken.append(Cut(document, passages, fingerprint(document, self.limits)))
            else:
                result.refused.append((document.document_id, reason))
        return result

    async def embed(self, taken: Sequence[Cut]) -> list[Document]:
        """The documents with their vectors."""
        places = [(i, j) for i, cut in enumerate(taken) for j in range(len(cut.passages))]
        vectors = [np.empty((len(cut.passages), self.embedder.dim), np.float32) for cut in taken]
        remaining = iter(places)

        async def work() -> None:
            for i, j in remaining:
                vectors[i][j] = await self._embed(taken[i].passages[j])

        workers = [asyncio.ensure_future(work()) for _ in range(min(self.threads, len(places)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return [
            Document(
                cut.document.document_id,
                cut.document.title,
                dict(cut.document.attributes),
                cut.document.expires_at_ms,
                cut.passages,
                vectors[i],
                cut.fingerprint,
            )
            for i, cut in enumerate(taken)
        ]

    async def _embed(self, passage: str) -> Vector:
        rows: Matrix = await self.pool.run(
            Priority.INDEX, lambda: self.embedder.embed_passages([passage]), is_admitted=True
        )
        vector: Vector = rows[0]
        return vector
