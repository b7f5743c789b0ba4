"""Level 3 of degradation: documents that stand ready for a schema, for when nothing is left to generate one."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

from ssop.v1.errors_pb2 import ErrorReason
from ssop.v1.frame_pb2 import FinishReason
from ssop_chassis.errors import MeshError
from ssop_chassis.settings import Settings, SettingsError
from ssop_codec import Encoder, Schema, SchemaError, Verdict, compile_schema
from ssop_router.core.ladder import CANNED_LEVEL, RETRY_AFTER_MS
from ssop_router.job import Job

_NOTHING_LEFT: Final = frozenset({ErrorReason.ERROR_REASON_NO_BACKEND, ErrorReason.ERROR_REASON_OVERLOADED})


class CannedSettings(Settings):
    """A document for a schema. It is checked when the router starts."""

    schema_file: Path = Field(description="The schema, as requests send it: JSON.")
    document_file: Path = Field(description="The document: JSON that fits the schema.")
    tenant: str = Field("", description="Whose requests it answers; empty: everyone's who has no document of its own.")


class CannedDocuments:
    """The documents, as frames, by tenant and schema."""

    def __init__(self, chunks: Mapping[tuple[str, bytes], bytes] | None = None) -> None:
        self._chunks = dict(chunks or {})

    def find(self, job: Job, error: MeshError) -> bytes | None:
        """The document for a request for which nothing else is left, as chunk bytes; None where there is none.

        Raises DEGRADED_REFUSED where there is one, and the caller takes no such answer.
        """
        if error.reason not in _NOTHING_LEFT or job.schema is None:
            return None
        key = job.schema.hash
        chunk = self._chunks.get((job.tenant, key)) or self._chunks.get(("", key))
        if chunk is not None and job.max_degraded_level < CANNED_LEVEL:
            raise MeshError(
                ErrorReason.ERROR_REASON_DEGRADED_REFUSED,
                f"only an answer degraded to level {CANNED_LEVEL} is left, and the request refuses it",
                metadata={"level": str(CANNED_LEVEL)},
                retry_after_ms=RETRY_AFTER_MS,
            ) from error
        return chunk


def load_canned(entries: Iterable[CannedSettings]) -> CannedDocuments:
    """Read the documents and check each against its schema. Raises SettingsError, naming the file at fault."""
    chunks = {}
    for entry in entries:
        schema = read_schema("canned", entry.schema_file)
        chunks[entry.tenant, schema.hash] = _encode(schema, entry.document_file)
    return CannedDocuments(chunks)


def read_schema(table: str, path: Path) -> Schema:
    """The schema in a file that a table of the settings names. Raises SettingsError."""
    try:
        return compile_schema(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SchemaError) as error:
        raise SettingsError(f"[router] {table}: schema_file {path}: {error}") from error


def _encode(schema: Schema, path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"[router] canned: document_file {path}: {error}") from error
    encoder = Encoder(schema)
    encoder.feed(text)
    encoder.finish(finish_reason=int(FinishReason.FINISH_REASON_STOP))
    if encoder.verdict != Verdict.OK:
        violation = encoder.violation
        fault = f"{violation.rule} at '{violation.pointer}'" if violation is not None else "it ends too early"
        raise SettingsError(f"[router] canned: document_file {path} does not fit its schema: {fault}")
    return b"".join(encoder.drain(flush=True))
