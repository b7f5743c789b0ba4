"""Documents as callers give them and as the mesh tells of them; requests of `client.index`. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ssop.v1 import mesh_pb2
from ssop.v1 import rag_pb2 as pb

MAX_CALL_DOCUMENTS: Final = 100
MAX_CALL_BYTES: Final = 131_072
"""What one call carries, unless one document has more: a few hundred passages, which take seconds to embed."""
UPSERT_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Document:
    """A text to index. `id` is unique in its collection, at most 512 bytes; one that is there already is replaced."""

    id: str
    text: str
    title: str = ""
    """Put before each passage of the text."""
    expires_at_ms: int = 0
    """When it stops being found, milliseconds since the epoch; 0 is never."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Kept with it, and listed."""


DocumentsLike = Mapping[str, str] | Iterable[Document | Mapping[str, Any]]
"""Texts by id, or documents, or mappings with the names of a Document's fields."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What became of documents, by id. `version` is the collection's after the last change."""

    indexed: Sequence[str] = ()
    unchanged: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons by id."""
    passages: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that was found. `score` is comparable only within one answer; larger is better."""

    collection: str
    document_id: str
    passage: int
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that was put before the model. `number` is its number there, from 1: what a citation names."""

    number: int
    collection: str
    document_id: str
    passage: int
    score: float


def read_documents(documents: DocumentsLike) -> Iterator[pb.IndexDocument]:
    """The documents of a call, one by one. Raises TypeError and ValueError, which quote no text."""
    if isinstance(documents, str | bytes):
        raise TypeError("documents are a mapping of texts by id, or Documents")
    items: Iterable[Any] = (
        (Document(name, text) for name, text in documents.items()) if isinstance(documents, Mapping) else documents
    )
    for number, item in enumerate(items):
        yield _read_document(item, number)


def _read_document(item: Any, number: int) -> pb.IndexDocument:
    if isinstance(item, Mapping):
        try:
            item = Document(**item)
        except TypeError:
            raise TypeError(f"documents[{number}] has other fields than a Document, or lacks id or text") from None
    if not isinstance(item, Document):
        raise TypeError(f"documents[{number}] is a Document or a mapping, not {type(item).__name__}")
    if not isinstance(item.id, str) or not isinstance(item.text, str) or not isinstance(item.title, str):
        raise TypeError(f"documents[{number}]: id, text and title are str")
    try:
        return pb.IndexDocument(
            document_id=item.id,
            text=item.text,
            title=item.title,
            expires_at_ms=item.expires_at_ms,
            attributes=item.attributes,
        )
    except UnicodeEncodeError:
        raise ValueError(f"documents[{number}] has characters that are no text: half of a surrogate pair") from None


def upsert_requests(collection: str, documents: DocumentsLike) -> Iterator[pb.UpsertDocumentsRequest]:
    """Requests that carry the documents in order, each of a size that is done in seconds."""
    request = pb.UpsertDocumentsRequest(collection=collection)
    size_bytes = 0
    for document in read_documents(documents):
        more_bytes = document.ByteSize()
        is_full = len(request.documents) == MAX_CALL_DOCUMENTS or size_bytes + more_bytes > MAX_CALL_BYTES
        if request.documents and is_full:
            yield request
            request, size_bytes = pb.UpsertDocumentsRequest(collection=collection), 0
        request.documents.append(document)
        size_bytes += more_bytes
    if request.documents:
        yield request


class ReportMaker:
    """Adds the responses of several calls up."""

    def __init__(self) -> None:
        self._indexed: list[str] = []
        self._unchanged: list[str] = []
        self._refused: dict[str, str] = {}
        self._passages = 0
        self._version = 0

    def add(self, request: pb.UpsertDocumentsRequest, response: pb.UpsertDocumentsResponse) -> None:
        """A call that was answered."""
        refused = {one.document_id: one.reason for one in response.refused}
        unchanged = set(response.unchanged_document_ids)
        self._indexed += [
            one.document_id
            for one in request.documents
            if one.document_id not in refused and one.document_id not in unchanged
        ]
        self._unchanged += response.unchanged_document_ids
        self._refused |= refused
        self._passages += response.passages
        self._version = response.index_version

    def report(self) -> IndexReport:
        """All of it."""
        return IndexReport(self._indexed, self._unchanged, self._refused, self._passages, self._version)


def delete_request(collection: str, document_ids: Iterable[str]) -> pb.DeleteDocumentsRequest:
    """The request that deletes documents. Raises TypeError for a single str, which would be its characters."""
    if isinstance(document_ids, str):
        raise TypeError("document_ids is a list of ids")
    return pb.DeleteDocumentsRequest(collection=collection, document_ids=list(document_ids))


def search_request(query: str, collections: Iterable[str], top_k: int) -> pb.RetrieveRequest:
    """The request that finds passages."""
    if isinstance(collections, str):
        raise TypeError("collections is a list of names")
    return pb.RetrieveRequest(query=query, collections=list(collections), top_k=top_k)


def read_found(response: pb.RetrieveResponse) -> list[Found]:
    """The passages of a response, best first."""
    return [Found(p.ref.collection, p.ref.document_id, p.ref.passage, p.ref.score, p.text) for p in response.passages]


def read_sources(status: mesh_pb2.DeliveryStatus | None) -> list[Source]:
    """The passages that a delivery names, as the model saw them numbered."""
    if status is None:
        return []
    return [
        Source(number, ref.collection, ref.document_id, ref.passage, ref.score)
        for number, ref in enumerate(status.passages, 1)
    ]
