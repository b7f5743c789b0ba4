"""The words of this service: documents, passages, what a search found. All frozen, no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""(dim,) float32, of length 1."""
Matrix = NDArray[np.float32]
"""(n, dim) float32, row-major, each row of length 1."""
Versions = tuple[tuple[str, int], ...]
"""(collection, version) in order of the names: what a search saw."""


class UnknownCollectionError(LookupError):
    """No such collection for this tenant. `collection` is the name that was asked for."""

    def __init__(self, collection: str) -> None:
        super().__init__(collection)
        self.collection = collection


class DocumentTooLargeError(ValueError):
    """A document that the store can't hold; the text says what is too large."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for. `vector` is None where no ranker needs one (`RankerChoice.needs_vector`)."""

    text: str
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its passages and their vectors (len(passages), dim). `expires_at_ms` 0: never.

    `fingerprint` names its content and how it was cut; "" where that is not known.
    """

    document_id: str
    title: str
    attributes: Mapping[str, str]
    expires_at_ms: int
    passages: Sequence[str]
    vectors: Matrix
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is listed, without its texts. `fingerprint` as in Document."""

    document_id: str
    title: str
    attributes: Mapping[str, str]
    expires_at_ms: int
    passages: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Change:
    """What a write did, and the version of the collection after it (0: there is no such collection)."""

    documents: int
    passages: int
    version: int


@dataclass(frozen=True, slots=True)
class CollectionStats:
    """A collection. `embedder` is the tag of what made its vectors; "" where there are none."""

    name: str
    documents: int
    passages: int
    version: int
    embedder: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and its score: the cosine with the query, BM25, or the fused score, as the ranker has it.

    Sorts best first; ties by name, so that order never depends on luck.
    """

    score: float
    collection: str
    document_id: str
    passage: int

    @property
    def rank(self) -> tuple[float, str, str, int]:
        """Sort key: best first."""
        return (-self.score, self.collection, self.document_id, self.passage)


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A hit with its text."""

    hit: Hit
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The passages of a search, best first, and the versions that it saw."""

    passages: Sequence[FoundPassage]
    versions: Versions


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best `len(hits)` passages for a prefix, with their vectors (len(hits), dim) in the same order.

    `is_complete`: the collections held no others (with BM25 alone: none that shares a term is left out).
    """

    prefix: Query
    names: tuple[str, ...]
    versions: Versions
    hits: Sequence[Hit]
    vectors: Matrix
    is_complete: bool
