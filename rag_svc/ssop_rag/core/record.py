"""Keys and records of the embedded store.

A key is a kind byte, then parts of bytes, each after its length (4 bytes, big endian): no tenant or name can be read as
another. A record is a version byte, the length of a JSON header (4 bytes, big endian), the header, and a body: the
vector of a passage as little-endian float32, else nothing. Every header names tenant, embedder and expiry; they are
checked again when it is read, whatever the key said.

The body of a passage goes on, after the vector, with its terms: their ids as little-endian uint64, then how often each
occurs as little-endian uint16. The header names the vector's length, the number of terms, and the rules that made them.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ssop_rag.core.model import Vector
from ssop_rag.core.terms import ANALYZER, Terms

WIRE_VERSION: Final = 2
"""Of a record that is written. Version 1 had no terms and is read still."""
CODEC_VERSION: Final = "1"
"""Of the code that cuts documents into passages and writes records; told in each header."""
TENANT: Final = b"T"
COLLECTION: Final = b"C"
DOCUMENT: Final = b"D"
PASSAGE: Final = b"P"
_LENGTH: Final = struct.Struct(">I")
_READ_VERSIONS: Final = frozenset({1, WIRE_VERSION})
_LITTLE_FLOAT32: Final = np.dtype("<f4")
_LITTLE_UINT64: Final = np.dtype("<u8")
_LITTLE_UINT16: Final = np.dtype("<u2")


class RecordError(ValueError):
    """A record that must not be used.

    `fault` is `malformed`, `wire_version`, `tenant` or `embedder`; readers add `missing` and `expired`.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(f"a stored record is unusable: {fault}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `embedder` is "" where no vector is involved; `expires_at_ms` 0 is never; `version` is the tenant's
    counter when it was written; `fields` holds what the kind needs. `terms` is None where the rules of today made none.
    """

    tenant: str
    embedder: str
    expires_at_ms: int
    version: int
    fields: Mapping[str, Any]
    vector: Vector | None = None
    terms: Terms | None = None


def encode_key(kind: bytes, *parts: str, number: int | None = None) -> bytes:
    """The key of a record; with fewer parts, the prefix that all keys below share."""
    encoded = [part.encode() for part in parts]
    key = kind + b"".join(_LENGTH.pack(len(part)) + part for part in encoded)
    return key if number is None else key + _LENGTH.pack(number)


def decode_key(key: bytes) -> tuple[list[str], bytes]:
    """The whole parts of a key after its kind, and the bytes that are left (the number of a passage).

    A trailing number of 4 bytes can't be taken for a part: a part has a length and that many bytes, none of them has 0.
    """
    parts: list[str] = []
    position = 1
    while position + _LENGTH.size < len(key):
        (size,) = _LENGTH.unpack_from(key, position)
        position += _LENGTH.size
        parts.append(key[position : position + size].decode())
        position += size
    return parts, key[position:]


def encode_record(record: Record) -> bytes:
    """The bytes of a record."""
    fields = {
        **record.fields,
        "tenant": record.tenant,
        "embedder": record.embedder,
        "expires_at_ms": record.expires_at_ms,
        "version": record.version,
        "codec": CODEC_VERSION,
    }
    body = b""
    if record.vector is not None:
        fields["dim"] = len(record.vector)
        body += record.vector.astype(_LITTLE_FLOAT32).tobytes()
    if record.terms is not None:
        fields["terms"], fields["analyzer"] = len(record.terms.ids), ANALYZER
        body += record.terms.ids.astype(_LITTLE_UINT64).tobytes()
        body += record.terms.counts.astype(_LITTLE_UINT16).tobytes()
    header = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return bytes([WIRE_VERSION]) + _LENGTH.pack(len(header)) + header + body


def decode_record(data: bytes, *, tenant: str, embedder: str = "", dim: int = 0) -> Record:
    """The record in `data`, if it is this tenant's and, where `embedder` is given, has its vector of `dim`.

    Raises RecordError otherwise.
    """
    if not data or data[0] not in _READ_VERSIONS:
        raise RecordError("wire_version")
    try:
        (size,) = _LENGTH.unpack_from(data, 1)
        begin = 1 + _LENGTH.size
        fields = json.loads(data[begin : begin + size])
        body = data[begin + size :]
        has_terms = fields.pop("analyzer", None) == ANALYZER
        fields.pop("codec", None)
        vector, terms = _decode_body(body, fields.pop("dim", None), int(fields.pop("terms", 0)))
        record = Record(
            tenant=str(fields.pop("tenant")),
            embedder=str(fields.pop("embedder")),
            expires_at_ms=int(fields.pop("expires_at_ms")),
            version=int(fields.pop("version")),
            fields=fields,
            vector=vector,
            terms=terms if has_terms else None,
        )
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError("malformed") from error
    if record.tenant != tenant:
        raise RecordError("tenant")
    if embedder and record.embedder != embedder:
        raise RecordError("embedder")
    if dim and (record.vector is None or record.vector.shape != (dim,)):
        raise RecordError("malformed")
    return record


def _decode_body(body: bytes, dim: int | None, count: int) -> tuple[Vector | None, Terms]:
    """The vector (of `dim`; None: the whole body) and `count` terms. Raises ValueError when the length is another."""
    size = len(body) if dim is None else _LITTLE_FLOAT32.itemsize * dim
    if len(body) != size + count * (_LITTLE_UINT64.itemsize + _LITTLE_UINT16.itemsize):
        raise ValueError("the body has another length than the header says")
    ids_end = size + count * _LITTLE_UINT64.itemsize
    return (
        np.frombuffer(body[:size], _LITTLE_FLOAT32).astype(np.float32) if size else None,
        Terms(
            np.frombuffer(body[size:ids_end], _LITTLE_UINT64).astype(np.uint64),
            np.frombuffer(body[ids_end:], _LITTLE_UINT16).astype(np.uint16),
        ),
    )
