"""`ssop index add`: files to documents to the mesh, and a report of what became of each."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ssop_cli.documents.extract import Kind, ReadError, kind_of
from ssop_cli.documents.files import STDIN, Source, Tally, find_sources, open_file, read_bytes
from ssop_cli.documents.jsonl import Fields, read_lines
from ssop_cli.documents.parser_process import ParserProcess
from ssop_cli.documents.parts import part_id, read_part, split_parts
from ssop_sdk import CollectionUnknown, Document, SsopClient

_BATCH_DOCUMENTS: Final = 64
_BATCH_BYTES: Final = 32_768
"""About 80 passages: so much is lost of the work when the connection goes, and so often the progress moves."""
_DELETE_DOCUMENTS: Final = 1_000
_MAX_ID_BYTES: Final = 512
_MAX_LISTED: Final = 1_000
"""Refusals that a report lists; all are counted."""
_HEAD_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class AddOptions:
    """What to add, and how it is read. `kind` and `encoding` are those of every file where they are given."""

    names: Sequence[str]
    collection: str
    base: Path
    kind: Kind | None = None
    encoding: str = ""
    stdin_id: str = "stdin"
    fields: Fields = field(default_factory=Fields)
    max_bytes: int = 32 * 2**20
    parse_timeout_s: float = 30.0
    is_pruned: bool = False
    timeout_s: float = 300.0


@dataclass(slots=True)
class AddReport:
    """What became of the documents. `refused` lists the first of `refused_count` as (name, reason)."""

    collection: str
    added: int = 0
    unchanged: int = 0
    removed: int = 0
    passages: int = 0
    version: int = 0
    refused_count: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    guessed: list[tuple[str, str]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    is_prune_skipped: bool = False

    def refuse(self, name: str, reason: str) -> None:
        """Count a document that is not indexed."""
        self.refused_count += 1
        if len(self.refused) < _MAX_LISTED:
            self.refused.append((name, reason))

    def to_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "collection": self.collection,
            "added": self.added,
            "unchanged": self.unchanged,
            "removed": self.removed,
            "refused": self.refused_count,
            "passages": self.passages,
            "index_version": self.version,
            "refusals": [{"name": name, "reason": reason} for name, reason in self.refused],
            "guessed_encodings": [{"name": name, "encoding": encoding} for name, encoding in self.guessed],
            "skipped": {"unknown_kind": self.tally.unknown_kind, "links": self.tally.links},
            "is_prune_skipped": self.is_prune_skipped,
        }


class Adder:
    """Runs one `ssop index add`. `on_progress(name, report)` hears of every file and every batch."""

    def __init__(
        self,
        client: SsopClient,
        options: AddOptions,
        parser: ParserProcess,
        on_progress: Callable[[str, AddReport], None],
    ) -> None:
        self._index = client.index
        self._options = options
        self._parser = parser
        self._on_progress = on_progress
        self._known: set[str] = set()
        self._parts: dict[str, list[tuple[int, str]]] = {}
        self._seen: set[str] = set()
        self._stale: list[str] = []
        self._batch: list[Document] = []
        self._batch_bytes = 0
        self.report = AddReport(options.collection)

    def run(self) -> AddReport:
        """Add everything that is named. Raises SsopError; the report then says what was done before."""
        self._known = self._list()
        for name in self._known:
            document_id, number = read_part(name)
            if number > 1:
                self._parts.setdefault(document_id, []).append((number, name))
        for source in self._sources():
            self._on_progress(source.id, self.report)
            if source.fault:
                self.report.refuse(source.id, source.fault)
                continue
            try:
                self._add_source(source)
            except ReadError as error:
                self.report.refuse(source.id, str(error))
        self._send()
        self._prune()
        return self.report

    def _list(self) -> set[str]:
        try:
            return {info.document_id for info in self._index.documents(self._options.collection)}
        except CollectionUnknown:
            return set()

    def _sources(self) -> Iterator[Source]:
        options = self._options
        for name in options.names:
            if name == STDIN:
                yield Source(options.stdin_id, Path(STDIN))
            else:
                yield from find_sources([name], options.base, self.report.tally)

    def _add_source(self, source: Source) -> None:
        options = self._options
        if str(source.path) == STDIN:
            self._add_file(source, sys.stdin.buffer, options.kind or "text")
            return
        with open_file(source.path) as file:
            head = file.read(_HEAD_BYTES)
            file.seek(0)
            self._add_file(source, file, options.kind or kind_of(source.path.name, head))

    def _add_file(self, source: Source, file: Any, kind: Kind) -> None:
        options = self._options
        if kind == "jsonl":
            for line in read_lines(file, source.id, options.fields):
                if line.fault:
                    self.report.refuse(line.id, line.fault)
                else:
                    self._add_text(line.id, line.text, line.title)
            return
        found = self._parser.parse(kind, read_bytes(file, options.max_bytes), options.encoding)
        if not found.text.strip():
            raise ReadError("it has no text")
        if found.encoding:
            self.report.guessed.append((source.id, found.encoding))
        self._add_text(source.id, found.text, found.title)

    def _add_text(self, document_id: str, text: str, title: str) -> None:
        if len(document_id.encode()) > _MAX_ID_BYTES:
            self.report.refuse(document_id[:80] + "…", f"its id has more than {_MAX_ID_BYTES} bytes")
            return
        parts = list(split_parts(text))
        names = [part_id(document_id, number) for number in range(1, len(parts) + 1)]
        if not self._seen.isdisjoint(names):
            self.report.refuse(document_id, "another document of this run has its id")
            return
        self._seen.update(names)
        self._stale += [name for number, name in self._parts.get(document_id, ()) if number > len(parts)]
        # The first part comes last: it is what a later run takes for unchanged.
        for name, part in reversed(list(zip(names, parts, strict=True))):
            self._put(Document(name, part, title[:1_000]))

    def _put(self, document: Document) -> None:
        size_bytes = len(document.text.encode(errors="replace"))
        if len(self._batch) >= _BATCH_DOCUMENTS or self._batch_bytes + size_bytes > _BATCH_BYTES:
            self._send()
        self._batch.append(document)
        self._batch_bytes += size_bytes

    def _send(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        options, report = self._options, self.report
        done = self._index.upsert(options.collection, batch, timeout_s=options.timeout_s)
        report.added += len(done.indexed)
        report.unchanged += len(done.unchanged)
        report.passages += done.passages
        report.version = done.version
        for name, reason in done.refused.items():
            report.refuse(name, reason)
        self._on_progress("", report)

    def _prune(self) -> None:
        options, report = self._options, self.report
        gone = [name for name in self._stale if name not in self._seen]
        if options.is_pruned and report.refused_count:
            # What could not be read may be there under an id that is not known now.
            report.is_prune_skipped = True
        elif options.is_pruned:
            gone = sorted(self._known - self._seen)
        for start in range(0, len(gone), _DELETE_DOCUMENTS):
            report.removed += self._index.delete(options.collection, gone[start : start + _DELETE_DOCUMENTS])
