"""The canonical cache key: one hash over every field that shapes an answer, the same for all cache levels."""

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

KEY_BYTES: Final = hashlib.sha256().digest_size
_DOMAIN: Final = b"ssop.cache-key.v1"
_SCOPE_DOMAIN: Final = b"ssop.similar-scope.v1"


class CanonicalRequest(NamedTuple):
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
    pieces = [_DOMAIN]
    _add(pieces, fields.tenant.encode())
    pieces.append(_pack_scopes(fields.scopes))
    _add(
        pieces,
        fields.model.encode(),
        fields.sampling,
        fields.template_version.encode(),
        fields.schema_hash,
        fields.index_version.encode(),
    )
    _add_list(pieces, fields.messages)
    _add_list(pieces, fields.tools)
    _add(pieces, fields.tool_choice)
    _add_list(pieces, [name.encode() for name in fields.collections])
    pieces.append(_counts(fields.retrieval_top_k, fields.stream_buffer_bytes, fields.wire_version))
    _add(pieces, fields.codec_version.encode())
    return hashlib.sha256(b"".join(pieces)).digest()


def scope_key(fields: CanonicalRequest) -> bytes:
    """The key of what two requests share that differ in their question only; `fields` has it taken out. 32 bytes."""
    return hashlib.sha256(_SCOPE_DOMAIN + cache_key(fields)).digest()


_count: Final = struct.Struct(">Q").pack
_counts: Final = struct.Struct(">QQQ").pack


def _add(pieces: list[bytes], *items: bytes) -> None:
    for item in items:
        pieces += (_count(len(item)), item)


def _add_list(pieces: list[bytes], items: Sequence[bytes]) -> None:
    pieces.append(_count(len(items)))
    _add(pieces, *items)


@lru_cache(256)
def _pack_scopes(scopes: frozenset[str]) -> bytes:
    pieces: list[bytes] = []
    _add_list(pieces, sorted(scope.encode() for scope in scopes))
    return b"".join(pieces)
