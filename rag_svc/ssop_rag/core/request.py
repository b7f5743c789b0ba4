"""What requests may hold: caps, names, and which documents are refused one by one."""

import re
from collections.abc import Sequence
from typing import Final

from ssop.v1 import rag_pb2

MAX_DOCUMENTS: Final = 1_000
MAX_UPSERT_BYTES: Final = 4 * 1024 * 1024
MAX_ID_BYTES: Final = 512
MAX_DELETES: Final = 10_000
MAX_COLLECTIONS: Final = 64
MAX_TOP_K: Final = 32
DEFAULT_TOP_K: Final = 4
MAX_QUERY_CHARS: Final = 1_000
"""Characters of a query that are embedded: the model reads 512 tokens, and its tokenizer is slow on long texts."""
MAX_PREFIX_CHARS: Final = 256
"""Characters of a prefix that are embedded, so that a prefetch never holds a thread for long."""
MAX_WARM_QUERIES: Final = 64
MAX_EMBEDDED_TEXTS: Final = 16
MAX_EMBEDDED_BYTES: Final = 8_192
CANDIDATE_BUDGET: Final = 4 * MAX_TOP_K
"""Candidates that a prefetch with ratio 1 fetches, whatever `top_k` is: 4 for each passage of the longest answer."""

_COLLECTION: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COLLECTION_RULE: Final = "must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -"
_MAX_CONTROL_SHARE: Final = 0.02
_CONTROL: Final = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f�]")

Faults = list[tuple[str, str]]
"""(field path, what is wrong) pairs; empty is no fault."""


def check_upsert(request: rag_pb2.UpsertDocumentsRequest) -> Faults:
    """Faults of the request as a whole; texts are judged by `refuse`."""
    faults = check_collection("collection", request.collection)
    count = len(request.documents)
    if not 1 <= count <= MAX_DOCUMENTS:
        return [*faults, ("documents", f"{count} documents; 1 to {MAX_DOCUMENTS} are taken")]
    size_bytes = sum(document.ByteSize() for document in request.documents)
    if size_bytes > MAX_UPSERT_BYTES:
        faults.append(("documents", f"{size_bytes} bytes together; at most {MAX_UPSERT_BYTES} are taken"))
    for index, document in enumerate(request.documents):
        faults += _check_id(f"documents[{index}].document_id", document.document_id)
        if document.expires_at_ms < 0:
            faults.append((f"documents[{index}].expires_at_ms", "must not be negative"))
    return faults


def check_delete(request: rag_pb2.DeleteDocumentsRequest) -> Faults:
    """Faults of a deletion."""
    faults = check_collection("collection", request.collection)
    if request.is_whole_collection == bool(request.document_ids):
        faults.append(("document_ids", "give document_ids, or set is_whole_collection, not both"))
    if len(request.document_ids) > MAX_DELETES:
        return [*faults, ("document_ids", f"more than {MAX_DELETES}")]
    for index, document_id in enumerate(request.document_ids):
        faults += _check_id(f"document_ids[{index}]", document_id)
    return faults


def check_list(request: rag_pb2.ListDocumentsRequest) -> Faults:
    """Faults of a listing."""
    faults = check_collection("collection", request.collection)
    if request.after_document_id:
        faults += _check_id("after_document_id", request.after_document_id)
    if request.limit > MAX_DOCUMENTS:
        faults.append(("limit", f"must be at most {MAX_DOCUMENTS}"))
    return faults


def check_search(collections: Sequence[str], top_k: int) -> Faults:
    """Faults that Prefetch and Retrieve share."""
    faults: Faults = []
    if len(collections) > MAX_COLLECTIONS:
        return [("collections", f"more than {MAX_COLLECTIONS}")]
    for index, name in enumerate(collections):
        faults += check_collection(f"collections[{index}]", name)
    if top_k > MAX_TOP_K:
        faults.append(("top_k", f"must be at most {MAX_TOP_K}"))
    return faults


def check_warming(queries: Sequence[str]) -> Faults:
    """Faults of queries that are to be expected."""
    if not 1 <= len(queries) <= MAX_WARM_QUERIES:
        return [("queries", f"{len(queries)} queries; 1 to {MAX_WARM_QUERIES} are taken")]
    return [(f"queries[{index}]", "is required") for index, query in enumerate(queries) if not normalise_query(query)]


def check_embedding(texts: Sequence[str]) -> Faults:
    """Faults of texts whose vectors are asked for."""
    if not 1 <= len(texts) <= MAX_EMBEDDED_TEXTS:
        return [("texts", f"{len(texts)} texts; 1 to {MAX_EMBEDDED_TEXTS} are taken")]
    return [
        (f"texts[{index}]", f"must have 1 to {MAX_EMBEDDED_BYTES} bytes")
        for index, text in enumerate(texts)
        if not 1 <= len(text.encode()) <= MAX_EMBEDDED_BYTES
    ]


def check_request_id(request_id: str) -> Faults:
    """A prefetch's request id: required, at most 512 bytes."""
    return _check_id("request_id", request_id)


def check_collection(path: str, name: str) -> Faults:
    """A collection's name."""
    return [] if _COLLECTION.fullmatch(name) else [(path, _COLLECTION_RULE)]


def _check_id(path: str, value: str) -> Faults:
    if not value:
        return [(path, "is required")]
    return [(path, f"must have at most {MAX_ID_BYTES} bytes")] if len(value.encode()) > MAX_ID_BYTES else []


def refuse(document: rag_pb2.IndexDocument, *, max_document_bytes: int, now_ms: int) -> str | None:
    """Why a document can't be indexed, or None. The reason quotes nothing of it."""
    size_bytes = document.ByteSize()
    if size_bytes > max_document_bytes:
        return f"the document has {size_bytes} bytes; at most {max_document_bytes} are taken"
    if not document.text.strip():
        return "the text is empty"
    if "\0" in document.text or "\0" in document.title or _is_binary(document.text):
        return "the text is not text: it holds control characters"
    if 0 < document.expires_at_ms <= now_ms:
        return "the document has expired already"
    return None


def _is_binary(text: str) -> bool:
    return len(_CONTROL.findall(text)) > _MAX_CONTROL_SHARE * len(text)


def normalise_query(text: str, max_chars: int = MAX_QUERY_CHARS) -> str:
    """The part of a query that is embedded: white space joined, no NUL, at most `max_chars` characters."""
    return " ".join(text[: 8 * max_chars].replace("\0", " ").split())[:max_chars].rstrip()


def is_cut(text: str) -> bool:
    """Whether `normalise_query` leaves out words."""
    head, tail = text[: 8 * MAX_QUERY_CHARS], text[8 * MAX_QUERY_CHARS :]
    return bool(tail.strip()) or len(normalise_query(text)) < len(" ".join(head.replace("\0", " ").split()))


def candidate_count(ratio: float, top_k: int) -> int:
    """Candidates to prefetch: a share from 0 to 1 of the budget, and never fewer than the answer needs."""
    return max(top_k, round(ratio * CANDIDATE_BUDGET))
