"""The canonical cache key: one hash over every field that shapes an answer, the same for all cache levels."""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

KEY_BYTES: Final = hashlib.sha256().digest_size
_DOMAIN: Final = b"ssop.cache-key.v1"
_SCOPE_DOMAIN: Final = b"ssop.similar-scope.v1"


@dataclass(frozen=True, slots=True)
class CanonicalRequest:
    """Everything that shapes an answer. A field that is left out here makes two different answers share a key.

    Protobuf messages go in as the bytes of a deterministic serialisation; their order is the order in which the
    model sees them. `schema_hash` is empty for plain text.
    """

    tenant: str
    scopes: frozenset[str]
    model: str
    sampling: bytes
    template_version: str
    schema_hash: bytes
    index_version: str
    messages: tuple[bytes, ...]
    tools: tuple[bytes, ...] = ()
    tool_choice: bytes = b""
    collections: tuple[str, ...] = ()
    retrieval_top_k: int = 0
    stream_buffer_bytes: int = 0
    wire_version: int = 1
    codec_version: str = ""


def cache_key(fields: CanonicalRequest) -> bytes:
    """The key: SHA-256 (FIPS 180-4), 32 bytes, over an encoding in which no two requests share a form.

    Every item is preceded by its length, every list by its count (8 bytes each, big-endian), in a fixed order.
    Scopes are a set, so they are sorted; everything else keeps its order.
    """
    items = (
        _DOMAIN,
        _text(fields.tenant),
        _list(sorted(scope.encode() for scope in fields.scopes)),
        _text(fields.model),
        _item(fields.sampling),
        _text(fields.template_version),
        _item(fields.schema_hash),
        _text(fields.index_version),
        _list(fields.messages),
        _list(fields.tools),
        _item(fields.tool_choice),
        _list(name.encode() for name in fields.collections),
        _count(fields.retrieval_top_k),
        _count(fields.stream_buffer_bytes),
        _count(fields.wire_version),
        _text(fields.codec_version),
    )
    return hashlib.sha256(b"".join(items)).digest()


def scope_key(fields: CanonicalRequest) -> bytes:
    """The key of what two requests share that differ in their question only; `fields` has it taken out. 32 bytes."""
    return hashlib.sha256(_SCOPE_DOMAIN + cache_key(fields)).digest()


_count: Final = struct.Struct(">Q").pack


def _item(data: bytes) -> bytes:
    return _count(len(data)) + data


def _text(text: str) -> bytes:
    return _item(text.encode())


def _list(items: Iterable[bytes]) -> bytes:
    encoded = [_item(item) for item in items]
    return _count(len(encoded)) + b"".join(encoded)
