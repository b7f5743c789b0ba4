"""Records for other tools: Parquet, with schema id and hash on each, and an edge list of entities and events as CSV."""

import csv
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ssop_opinion.core.record import Record
from ssop_opinion.core.rules import ENTITY, EVENT, fold
from ssop_opinion.core.summary import Tally, number

BATCH: Final = 5_000
MAX_EDGES: Final = 200_000
_TEXT_FIELDS: Final = (
    "main_entity", "entity_type", "event_type", "sentiment_label", "summary", "evidence", "audience",
    "suggested_action",
)  # fmt: skip
_NUMBER_FIELDS: Final = ("sentiment_score", "severity", "confidence")
EDGE_COLUMNS: Final = (
    "entity", "event_type", "posts", "negative", "neutral", "positive", "mean_score", "severity_max",
    "degraded_posts_apart", "first_ms", "last_ms",
)  # fmt: skip


class ParquetMissingError(Exception):
    """The extra `parquet` is not installed."""


def _schema() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - the extra `parquet`
    except ImportError as error:
        raise ParquetMissingError("Parquet needs the extra: pip install 'ssop-mesh[parquet]'") from error
    stamp = pa.timestamp("ms", tz="UTC")
    text, whole, real = pa.string(), pa.int64(), pa.float64()
    columns = {
        "key": text, "tenant": text, "source": text, "id": text, "channel": text, "received": stamp, "posted": stamp,
        "region": text, "product_line": text, "post_language": text, "text": text, "verdict": text,
        "is_fresh": pa.bool_(), "degraded_level": whole, "reason": text, "schema_id": text, "schema_hash": text,
        "request_id": text, "tier": text, "model": text, "cache": text, "first_field_ms": real, "total_ms": real,
        "analysed": stamp, "hint": real, "event_hint": text,
        "input_tokens": whole, "output_tokens": whole, "passages": whole,
        **dict.fromkeys(_TEXT_FIELDS, text), **dict.fromkeys(_NUMBER_FIELDS, real),
        "language": text, "fields_json": text, "probabilities_json": text,
    }  # fmt: skip
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


def _row(record: Record) -> dict[str, Any]:
    post, found = record.post, record.analysis
    row: dict[str, Any] = {
        "key": record.key, "tenant": post.tenant, "source": post.source, "id": post.id, "channel": post.channel,
        "received": post.received_ms, "posted": post.posted_ms or None, "region": post.region,
        "product_line": post.product_line, "post_language": post.language, "text": post.text, "verdict": found.verdict,
        "is_fresh": found.is_fresh, "degraded_level": found.degraded_level, "reason": found.reason,
        "schema_id": found.schema_id, "schema_hash": found.schema_hash, "request_id": found.request_id,
        "tier": found.tier, "model": found.model, "cache": found.cache, "first_field_ms": found.first_field_ms,
        "total_ms": found.total_ms, "analysed": record.analysed_ms, "hint": found.hint,
        "event_hint": found.event_hint,
        "input_tokens": found.input_tokens, "output_tokens": found.output_tokens, "passages": found.passages,
    }  # fmt: skip
    for name in (*_TEXT_FIELDS, "language"):
        value = found.fields.get(name)
        row[name] = value if isinstance(value, str) else None
    for name in _NUMBER_FIELDS:
        row[name] = number(found.fields, name)
    row["fields_json"] = json.dumps(found.fields, ensure_ascii=True)
    row["probabilities_json"] = json.dumps(found.probabilities, ensure_ascii=True)
    # Half a surrogate pair, which posts may hold, has no UTF-8.
    return {name: _whole(value) if isinstance(value, str) else value for name, value in row.items()}


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


async def write_parquet(records: AsyncIterator[Record], path: Path) -> int:
    """Write records, and say how many. The file is there when all of it is. Raises ParquetMissingError and OSError."""
    schema = _schema()
    import pyarrow as pa  # noqa: PLC0415 - see above
    import pyarrow.parquet as pq  # noqa: PLC0415

    part = path.with_name(f".{path.name}.{os.getpid()}")
    total = 0
    try:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            rows: list[dict[str, Any]] = []
            async for record in records:
                rows.append(_row(record))
                if len(rows) == BATCH:
                    writer.write_table(pa.Table.from_pylist(rows, schema))
                    total += len(rows)
                    rows = []
            if rows or not total:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                total += len(rows)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return total


@dataclass(slots=True)
class _Edge:
    entity: str
    event_type: str
    tally: Tally
    degraded: int = 0
    first_ms: int = 0
    last_ms: int = 0


class Edges:
    """An edge for each entity and event type that a post named together. Degraded posts are counted apart."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edge] = {}
        self.left_out = 0
        """Posts of edges beyond MAX_EDGES."""

    def add(self, record: Record) -> None:
        """Count a record."""
        fields, at_ms = record.analysis.fields, record.post.received_ms
        entity, event = fields.get(ENTITY), fields.get(EVENT)
        if record.analysis.verdict != "ok" or not isinstance(entity, str) or not isinstance(event, str):
            return
        key = f"{fold(entity)}\n{fold(event)}"
        if key not in self._edges and len(self._edges) >= MAX_EDGES:
            self.left_out += 1
            return
        edge = self._edges.setdefault(key, _Edge(entity, event, Tally(), 0, at_ms, at_ms))
        edge.first_ms, edge.last_ms = min(edge.first_ms, at_ms), max(edge.last_ms, at_ms)
        if record.analysis.is_fresh:
            edge.tally.add(fields)
        else:
            edge.degraded += 1

    def rows(self) -> list[Mapping[str, Any]]:
        """Rows of EDGE_COLUMNS, those with most posts first."""
        return [
            {
                "entity": _cell(edge.entity), "event_type": _cell(edge.event_type), **edge.tally.to_json(),
                "degraded_posts_apart": edge.degraded, "first_ms": edge.first_ms, "last_ms": edge.last_ms,
            }
            for edge in sorted(
                self._edges.values(), key=lambda one: (-one.tally.posts, -one.degraded, one.entity, one.event_type)
            )
        ]  # fmt: skip


def write_edges(edges: Edges, path: Path) -> int:
    """Write the edge list as CSV, and say how many edges. The file is there when all of it is. Raises OSError."""
    rows = edges.rows()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.DictWriter(file, EDGE_COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return len(rows)


def _cell(text: str) -> str:
    # Spreadsheets run what begins like a formula.
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
