"""The name of a document's content: what is stored under the same one need not be embedded again."""

import hashlib
import json

from ssop.v1 import rag_pb2
from ssop_rag.core.chunking import CHUNKER, Limits


def fingerprint(document: rag_pb2.IndexDocument, limits: Limits) -> str:
    """SHA-256 in hex over everything that shapes a stored document but its id: content, and how it is cut."""
    shape = [
        CHUNKER,
        limits.max_chars,
        limits.overlap_chars,
        document.title,
        document.text,
        document.expires_at_ms,
        sorted(document.attributes.items()),
    ]
    return hashlib.sha256(json.dumps(shape, separators=(",", ":")).encode()).hexdigest()
