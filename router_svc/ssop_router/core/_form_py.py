"""The twin of `_form.pyx`, for where that is not built."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ssop_router.core.cache_key import CanonicalRequest

DOMAIN: Final = b"ssop.cache-key.v1"
_count: Final = struct.Struct(">Q").pack
_counts: Final = struct.Struct(">QQQ").pack


def encode(fields: "CanonicalRequest") -> bytes:
    """What a key is the hash of: a form that no two requests share.

    Every item is preceded by its length, every list by its count (8 bytes each, big-endian), in a fixed order.
    Scopes are a set, so they are sorted; everything else keeps its order.
    """
    pieces = [DOMAIN]
    _add(pieces, fields.tenant.encode())
    pieces.append(pack_scopes(fields.scopes))
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
    return b"".join(pieces)


def _add(pieces: list[bytes], *items: bytes) -> None:
    for item in items:
        pieces += (_count(len(item)), item)


def _add_list(pieces: list[bytes], items: Sequence[bytes]) -> None:
    pieces.append(_count(len(items)))
    _add(pieces, *items)


@lru_cache(256)
def pack_scopes(scopes: frozenset[str]) -> bytes:
    """The form of a set of scopes: few sets are ever used."""
    pieces: list[bytes] = []
    _add_list(pieces, sorted(scope.encode() for scope in scopes))
    return b"".join(pieces)
