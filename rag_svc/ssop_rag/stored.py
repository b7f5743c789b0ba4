"""Documents as they lie in the embedded store: found, listed, read whole. Blocking."""

from collections.abc import Iterator

import numpy as np

from ssop_rag.core import record as codec
from ssop_rag.core.model import Document, StoredDocument
from ssop_rag.core.record import DOCUMENT, PASSAGE, Record, RecordError
from ssop_rag.database import Database, Snapshot


class StoredView:
    """One tenant's documents in a database, or in a snapshot of it.

    Documents with vectors of another embedder than `embedder` are passed over; "" takes those of any.
    """

    def __init__(self, source: Database | Snapshot, tenant: str, embedder: str, dim: int) -> None:
        self._source = source
        self._tenant = tenant
        self._embedder = embedder
        self._dim = dim

    def find(self, collection: str, document_id: str) -> StoredDocument | None:
        """One document. Not on a snapshot, which can't be asked for one key."""
        if isinstance(self._source, Snapshot):
            raise TypeError("a snapshot can't be asked for one key")
        data = self._source.get(codec.encode_key(DOCUMENT, self._tenant, collection, document_id))
        record = self._decode(data) if data is not None else None
        return _stored(document_id, record) if record is not None else None

    def after(self, collection: str, last: str) -> Iterator[StoredDocument]:
        """Documents after the one called `last`, in the order of the keys: short ids first."""
        for document_id, record in self._records(collection, last):
            yield _stored(document_id, record)

    def read(self, collection: str, now_ms: int) -> Iterator[Document]:
        """Documents that have not expired, whole. Raises RecordError where one lacks a part."""
        for document_id, record in self._records(collection, ""):
            if record.expires_at_ms and record.expires_at_ms <= now_ms:
                continue
            found = _stored(document_id, record)
            prefix = codec.encode_key(PASSAGE, self._tenant, collection, document_id)
            parts = [
                codec.decode_record(data, tenant=self._tenant, embedder=self._embedder, dim=self._dim)
                for _, data in _below(self._source, prefix)
            ]
            if len(parts) != found.passages:
                raise RecordError("missing")
            yield Document(
                document_id,
                found.title,
                found.attributes,
                record.expires_at_ms,
                [str(part.fields["text"]) for part in parts],
                np.stack([part.vector for part in parts if part.vector is not None]),
                found.fingerprint,
            )

    def _records(self, collection: str, after: str) -> Iterator[tuple[str, Record]]:
        prefix = codec.encode_key(DOCUMENT, self._tenant, collection)
        last = codec.encode_key(DOCUMENT, self._tenant, collection, after) if after else prefix
        for key, data in _below(self._source, prefix, begin=last):
            if after and key == last:
                continue
            record = self._decode(data)
            if record is not None:
                yield codec.decode_key(key)[0][2], record

    def _decode(self, data: bytes) -> Record | None:
        try:
            return codec.decode_record(data, tenant=self._tenant, embedder=self._embedder)
        except RecordError as error:
            if error.fault == "embedder":
                return None
            raise


def _stored(document_id: str, record: Record) -> StoredDocument:
    fields = record.fields
    return StoredDocument(
        document_id,
        str(fields["title"]),
        {str(name): str(value) for name, value in fields["attributes"].items()},
        record.expires_at_ms,
        int(fields["passages"]),
        str(fields.get("fingerprint", "")),
    )


def _below(source: Database | Snapshot, prefix: bytes, *, begin: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    for key, value in source.walk(begin or prefix):
        if not key.startswith(prefix):
            return
        yield key, value
