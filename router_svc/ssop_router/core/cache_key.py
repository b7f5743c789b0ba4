# cython: annotation_typing=False
"""The canonical cache key: one hash over every field that shapes an answer, the same for all cache levels.

`cache_key.pxd` gives the types with which this very file is compiled.
"""

import hashlib
from typing import Final, NamedTuple

try:
    from ssop_router.core._form import encode
except ImportError:
    from ssop_router.core._form_py import encode

KEY_BYTES: Final = hashlib.sha256().digest_size
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
    """The key: SHA-256 (FIPS 180-4), 32 bytes, over an encoding in which no two requests share a form."""
    return hashlib.sha256(encode(fields)).digest()


def scope_key(fields: CanonicalRequest) -> bytes:
    """The key of what two requests share that differ in their question only; `fields` has it taken out. 32 bytes."""
    return hashlib.sha256(_SCOPE_DOMAIN + cache_key(fields)).digest()
