"""Records in SQLite, with a full-text index: the embedded default.

One thread writes, on one connection; searches have another. WAL, so that neither waits for the other; every write is on
disk when it returns (`synchronous=FULL`).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic_core import from_json, to_json

from ssop_opinion.core.document import from_document, terms_of, to_document
from ssop_opinion.core.record import Record
from ssop_opinion.core.terms import index_text, match_query
from ssop_opinion.ports import ItemFault, Page, Query, SinkAwayError

T = TypeVar("T")
MAX_PAGE: Final = 10_000
_VERSION: Final = 1
_SCHEMA: Final = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS records (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  received_ms INTEGER NOT NULL,
  is_fresh INTEGER NOT NULL,
  terms TEXT NOT NULL,
  document TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS records_by_time ON records (tenant, received_ms DESC, id DESC);
CREATE VIRTUAL TABLE IF NOT EXISTS records_text USING fts5 (words, tokenize="unicode61 remove_diacritics 2");
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_PUT: Final = """
INSERT INTO records (key, tenant, received_ms, is_fresh, terms, document) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
  tenant = excluded.tenant, received_ms = excluded.received_ms, is_fresh = excluded.is_fresh, terms = excluded.terms,
  document = excluded.document
RETURNING id
"""


class SqliteSink:
    """A Sink. Make one with `open_sqlite`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="records-write")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="records-read")
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    async def write(self, records: Sequence[Record]) -> Sequence[ItemFault]:
        """See Sink."""
        await self._run(self._writing, lambda: self._write(records))
        return ()

    async def find(self, query: Query) -> Page:
        """See Sink."""
        return await self._run(self._reading, lambda: self._find(query))

    async def close(self) -> None:
        """See Sink."""
        for pool, connection in ((self._writing, self._writer), (self._reading, self._reader)):
            if connection is not None:
                await asyncio.get_running_loop().run_in_executor(pool, connection.close)
            pool.shutdown(wait=False)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except sqlite3.Error as error:
            raise SinkAwayError(f"{self._path.name} can't be used: {error.sqlite_errorname}") from error
        except OSError as error:
            raise SinkAwayError(f"{self._path.name} can't be used: {error.strerror}") from error

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # One thread uses it at a time, but the one that closes it may be another.
        connection = sqlite3.connect(self._path, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            _make_tables(connection)
        except BaseException:
            connection.close()
            raise
        self._path.chmod(0o600)
        return connection

    def _write(self, records: Sequence[Record]) -> None:
        if self._writer is None:
            self._writer = self._open()
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            for record in records:
                self._put(connection, record)
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    @staticmethod
    def _put(connection: sqlite3.Connection, record: Record) -> None:
        post, analysis = record.post, record.analysis
        row = (
            record.key,
            post.tenant,
            post.received_ms,
            analysis.is_fresh,
            to_json(terms_of(record)).decode(),
            to_json(to_document(record)).decode(),
        )
        (number,) = connection.execute(_PUT, row).fetchone()
        said = (value for value in analysis.fields.values() if isinstance(value, str))
        words = index_text("\n".join((post.text, *said)))
        connection.execute("INSERT OR REPLACE INTO records_text (rowid, words) VALUES (?, ?)", (number, words))

    def _find(self, query: Query) -> Page:
        if self._reader is None:
            self._reader = self._open()
        where, arguments = _where(query)
        if where is None:
            return Page((), 0)
        source = f"FROM records WHERE {where}"
        (total,) = self._reader.execute(f"SELECT count(*) {source}", arguments).fetchone()
        rows = self._reader.execute(
            f"SELECT document {source} ORDER BY received_ms DESC, id DESC LIMIT ? OFFSET ?",
            (*arguments, min(query.limit, MAX_PAGE), query.offset),
        )
        return Page([from_document(from_json(document)) for (document,) in rows], total)


def _make_tables(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > _VERSION:
        raise OSError(0, f"it is of version {version}; this program knows {_VERSION}")
    if version < _VERSION:
        connection.executescript(_SCHEMA)


def _where(query: Query) -> tuple[str | None, list[Any]]:
    """A condition on records, and its arguments, in which all that is asked for is; None where nothing can match."""
    parts: list[str] = ["tenant = ?"]
    values: list[Any] = [query.tenant]
    if query.text.strip():
        words = match_query(query.text)
        if not words:
            return None, []
        parts.append("id IN (SELECT rowid FROM records_text WHERE records_text MATCH ?)")
        values.append(words)
    for condition, value in (("received_ms >= ?", query.since_ms), ("received_ms < ?", query.until_ms)):
        if value is not None:
            parts.append(condition)
            values.append(value)
    for name, wanted in (query.terms or {}).items():
        # By name and value, since a path of json_extract would have to be written from the name.
        parts.append("EXISTS (SELECT 1 FROM json_each(records.terms) WHERE key = ? AND value = ?)")
        values += [name, wanted]
    if not query.has_degraded:
        parts.append("is_fresh = 1")
    return " AND ".join(parts), values


async def open_sqlite(path: Path) -> SqliteSink:
    """Open the file, or make it. Raises SinkAwayError."""
    sink = SqliteSink(path)
    try:
        await sink.write(())
    except SinkAwayError:
        await sink.close()
        raise
    return sink
