"""How passages and versions lie in Milvus. No calls are made here.

A tenant has a Milvus collection of its own for each embedder, so that neither vectors nor the counts behind BM25 meet
those of another tenant. A passage is a row; what identifies it in a filter is a digest or a name of safe characters, so
that no id of a caller is ever part of an expression. Everything that is checked when a row is read (tenant, embedder,
expiry, wire version) lies in the row too. Versions of collections are rows of one more Milvus collection.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ssop_rag.core.model import Document, DocumentTooLargeError, StoredDocument, Vector
from ssop_rag.core.record import CODEC_VERSION, WIRE_VERSION, RecordError
from ssop_rag.core.terms import Terms, extract_terms

ROW_FIELDS: Final = ["collection", "document_key", "passage", "expires_at_ms", "version", "head", "text"]
MAX_HEAD_BYTES: Final = 65_000
"""Of tenant, ids, title and attributes together: Milvus holds at most 65,535 bytes in a field."""
IDS_A_FILTER: Final = 200
_MAX_TERMS_BYTES: Final = 65_535
_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Row:
    """A passage as it was read, after its checks. `vector` where it was asked for."""

    collection: str
    document_id: str
    passage: int
    expires_at_ms: int
    version: int
    text: str
    head: Mapping[str, Any]
    vector: Vector | None

    def stored(self) -> StoredDocument:
        """The document, of which this is the first passage."""
        attributes = {str(name): str(value) for name, value in self.head["attributes"].items()}
        return StoredDocument(
            self.document_id,
            str(self.head["title"]),
            attributes,
            self.expires_at_ms,
            int(self.head["passages"]),
            str(self.head["fingerprint"]),
        )


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A collection of a tenant. `embedder` made its vectors last. `next_expiry_ms`: nothing in it expires before; 0
    where nothing does."""

    collection: str
    embedder: str
    version: int
    next_expiry_ms: int


def digest(*parts: str) -> str:
    """32 hexadecimal digits for some strings, different for different ones."""
    joined = "".join(f"{len(part)}:{part}" for part in parts).encode()
    return hashlib.blake2b(joined, digest_size=_KEY_BYTES).hexdigest()


def passage_key(collection: str, document_id: str, passage: int) -> str:
    """The primary key of a passage."""
    return digest(collection, document_id, str(passage))


def make_rows(
    tenant: str, embedder: str, collection: str, document: Document, version: int
) -> Iterable[dict[str, Any]]:
    """The rows of a document. Raises DocumentTooLargeError."""
    for number, (text, vector) in enumerate(zip(document.passages, document.vectors, strict=True)):
        head = {
            "wire": WIRE_VERSION,
            "codec": CODEC_VERSION,
            "tenant": tenant,
            "embedder": embedder,
            "document_id": document.document_id,
        }
        if number == 0:
            head |= {
                "title": document.title,
                "attributes": dict(document.attributes),
                "passages": len(document.passages),
                "fingerprint": document.fingerprint,
            }
        encoded = json.dumps(head, ensure_ascii=False, separators=(",", ":"))
        if len(encoded.encode()) > MAX_HEAD_BYTES:
            raise DocumentTooLargeError(f"title and attributes of one have more than {MAX_HEAD_BYTES} bytes together")
        yield {
            "key": passage_key(collection, document.document_id, number),
            "collection": collection,
            "document_key": digest(document.document_id),
            "passage": number,
            "expires_at_ms": document.expires_at_ms,
            "version": version,
            "head": encoded,
            "text": text,
            "terms": spell(extract_terms(text)),
            "vector": vector,
        }


def read_row(found: Mapping[str, Any], tenant: str, embedder: str, now_ms: int) -> Row:
    """A row, if it is this tenant's, of this embedder, and has not expired. Raises RecordError otherwise."""
    try:
        head = json.loads(found["head"])
        wire, owner, maker = head["wire"], head["tenant"], head["embedder"]
        vector = found.get("vector")
        row = Row(
            str(found["collection"]),
            str(head["document_id"]),
            int(found["passage"]),
            int(found["expires_at_ms"]),
            int(found["version"]),
            str(found["text"]),
            head,
            np.asarray(vector, dtype=np.float32) if vector is not None else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError("malformed") from error
    if wire != WIRE_VERSION:
        raise RecordError("wire_version")
    if owner != tenant:
        raise RecordError("tenant")
    if maker != embedder:
        raise RecordError("embedder")
    if 0 < row.expires_at_ms <= now_ms:
        raise RecordError("expired")
    return row


def spell(terms: Terms) -> str:
    """Terms as words for Milvus's own BM25, each as often as it occurs; the last ones are left out when too long."""
    words = [f"t{term:016x}" for term, count in zip(terms.ids, terms.counts, strict=True) for _ in range(count)]
    return " ".join(words[: _MAX_TERMS_BYTES // 18])


def quote(keys: Sequence[str]) -> str:
    """A list of digests for a filter."""
    return json.dumps(list(keys))


def in_collections(names: Sequence[str]) -> str:
    """A filter; the names hold A-Z, a-z, 0-9, _ and - only."""
    return f"collection in {json.dumps(list(names))}"


def of_documents(document_ids: Sequence[str]) -> str:
    """A filter."""
    return f"document_key in {json.dumps([digest(document_id) for document_id in document_ids])}"


def surplus(documents: Sequence[Document]) -> Iterable[str]:
    """Filters of the passages that documents had before they were replaced by shorter ones."""
    by_length: dict[int, list[str]] = {}
    for document in documents:
        by_length.setdefault(len(document.passages), []).append(document.document_id)
    for length, ids in sorted(by_length.items()):
        for begin in range(0, len(ids), IDS_A_FILTER):
            yield f"{of_documents(ids[begin : begin + IDS_A_FILTER])} and passage >= {length}"


def alive(now_ms: int) -> str:
    """A filter."""
    return f"(expires_at_ms == 0 or expires_at_ms > {now_ms})"


def expired(now_ms: int) -> str:
    """A filter."""
    return f"(expires_at_ms > 0 and expires_at_ms <= {now_ms})"
