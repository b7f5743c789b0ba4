"""The bytes of a snapshot: a head, documents, a summary, and a checksum over all of it.

    magic (8 bytes), then items of a length (4 bytes, big endian, not 0) and that many bytes: the head, then documents;
    then 0 as a length, the summary as JSON, its length (4 bytes, big endian), SHA-256 of everything before (32 bytes)

An item is a record (`record.py`); it names tenant and embedder, and is refused where they are not the reader's.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from ssop_rag.core.model import CollectionStats, Document
from ssop_rag.core.record import Record, RecordError, decode_record, encode_record

MAGIC: Final = b"SSOPSNP1"
MAX_ITEM_BYTES: Final = 256 * 1024 * 1024
_MAX_SUMMARY_BYTES: Final = 16 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_END: Final = _LENGTH.pack(0)


class SnapshotError(ValueError):
    """A snapshot that can't be used. `fault`: `malformed`, `checksum`, `tenant`, `embedder` or `wire_version`."""

    def __init__(self, fault: str, embedder: str = "") -> None:
        super().__init__(f"the snapshot can't be used: {fault}")
        self.fault = fault
        self.embedder = embedder


@dataclass(frozen=True, slots=True)
class Summary:
    """What a snapshot says about itself. `created_at_ms` is the wall clock's."""

    created_at_ms: int
    collections: Sequence[CollectionStats]


class SnapshotWriter:
    """Writes a snapshot to a file that is open for it."""

    def __init__(self, file: BinaryIO, *, tenant: str, embedder: str) -> None:
        self._file = file
        self._tenant = tenant
        self._embedder = embedder
        self._digest = hashlib.sha256()
        self._write(MAGIC)
        self._put(Record(tenant, embedder, 0, 0, {}))

    def put(self, collection: str, document: Document) -> None:
        """Add a document."""
        fields = {
            "collection": collection,
            "document_id": document.document_id,
            "title": document.title,
            "attributes": dict(document.attributes),
            "passages": list(document.passages),
            "fingerprint": document.fingerprint,
        }
        vectors = document.vectors.ravel()
        self._put(Record(self._tenant, self._embedder, document.expires_at_ms, 0, fields, vectors))

    def finish(self, summary: Summary) -> None:
        """Write what comes after the last document."""
        text = json.dumps(
            {
                "created_at_ms": summary.created_at_ms,
                "collections": [
                    [stats.name, stats.documents, stats.passages, stats.version, stats.embedder]
                    for stats in summary.collections
                ],
            }
        ).encode()
        self._write(_END + text + _LENGTH.pack(len(text)))
        self._file.write(self._digest.digest())

    def _put(self, record: Record) -> None:
        data = encode_record(record)
        if len(data) > MAX_ITEM_BYTES:
            raise SnapshotError("malformed")
        self._write(_LENGTH.pack(len(data)) + data)

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


def read_summary(file: BinaryIO) -> Summary:
    """The summary at the end of a snapshot; nothing else is checked. Raises SnapshotError."""
    size = file.seek(0, 2)
    if size < len(MAGIC) + _LENGTH.size + _DIGEST_BYTES:
        raise SnapshotError("malformed")
    file.seek(size - _DIGEST_BYTES - _LENGTH.size)
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    start = size - _DIGEST_BYTES - _LENGTH.size - length
    if length > _MAX_SUMMARY_BYTES or start < len(MAGIC):
        raise SnapshotError("malformed")
    file.seek(start)
    try:
        found = json.loads(file.read(length))
        return Summary(
            int(found["created_at_ms"]),
            [
                CollectionStats(str(name), int(documents), int(passages), int(version), str(embedder))
                for name, documents, passages, version, embedder in found["collections"]
            ],
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotError("malformed") from error


def check_snapshot(file: BinaryIO) -> None:
    """Read all of a snapshot and compare its checksum. Raises SnapshotError."""
    size = file.seek(0, 2)
    file.seek(0)
    digest = hashlib.sha256()
    left = size - _DIGEST_BYTES
    while left > 0:
        data = file.read(min(left, 1024 * 1024))
        if not data:
            break
        digest.update(data)
        left -= len(data)
    if left or file.read(_DIGEST_BYTES) != digest.digest():
        raise SnapshotError("checksum")


def read_documents(file: BinaryIO, *, tenant: str, embedder: str, dim: int) -> Iterator[tuple[str, Document]]:
    """(collection, document) pairs of a snapshot whose checksum is good. Raises SnapshotError."""
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise SnapshotError("wire_version")
    head = _decode(_take(file), tenant)
    if head.embedder != embedder:
        raise SnapshotError("embedder", head.embedder)
    while data := _take(file):
        record = _decode(data, tenant)
        yield _document(record, record.fields, dim)


def _take(file: BinaryIO) -> bytes:
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise SnapshotError("malformed")
    (size,) = _LENGTH.unpack(head)
    data = file.read(size) if size <= MAX_ITEM_BYTES else b""
    if len(data) < size:
        raise SnapshotError("malformed")
    return data


def _decode(data: bytes, tenant: str) -> Record:
    try:
        return decode_record(data, tenant=tenant)
    except RecordError as error:
        raise SnapshotError(error.fault) from error


def _document(record: Record, fields: Mapping[str, Any], dim: int) -> tuple[str, Document]:
    try:
        passages = [str(text) for text in fields["passages"]]
        if record.vector is None or not passages:
            raise SnapshotError("malformed")
        return str(fields["collection"]), Document(
            str(fields["document_id"]),
            str(fields["title"]),
            {str(name): str(value) for name, value in fields["attributes"].items()},
            record.expires_at_ms,
            passages,
            record.vector.reshape(len(passages), dim),
            str(fields["fingerprint"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SnapshotError("malformed") from error
