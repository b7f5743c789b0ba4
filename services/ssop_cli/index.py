"""`ssop index`: what the commands show."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ssop.v1 import rag_pb2
from ssop_cli.documents.adding import Adder, AddOptions, AddReport
from ssop_cli.documents.parser_process import ParserProcess
from ssop_cli.mesh import Access, explain, open_client
from ssop_cli.terminal import visible
from ssop_sdk import Found, RetryPolicy, SsopClient, SsopError

# Indexing has time: it waits for its turn behind questions, and for a service that restarts.
_PATIENT = RetryPolicy(max_retries=10, base_delay_ms=250, max_delay_ms=5_000)
_MAX_SHOWN = 20


@contextmanager
def connect(access: Access, timeout_s: float) -> Iterator[SsopClient]:
    """See open_client."""
    with open_client(access, timeout_s, retry=_PATIENT) as client:
        yield client


def run_add(access: Access, options: AddOptions, console: Console, *, is_json: bool) -> tuple[AddReport, str]:
    """Add documents; the report, and what ended it early, or nothing. Raises CommandError where nothing was done."""
    with (
        Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=is_json or not console.is_terminal,
        ) as progress,
        connect(access, options.timeout_s) as client,
        ParserProcess(timeout_s=options.parse_timeout_s) as parser,
    ):
        task = progress.add_task("")
        current = ""

        def show(name: str, report: AddReport) -> None:
            nonlocal current
            current = name or current
            text = f"{report.added + report.unchanged} documents, {report.passages} passages  {visible(current)}"
            progress.update(task, description=text[: max(20, console.width - 20)].replace("[", "\\["))

        adder = Adder(client, options, parser, show)
        try:
            return adder.run(), ""
        except SsopError as error:
            if not adder.report.added and not adder.report.unchanged:
                raise
            return adder.report, explain(error, access).message


def add_view(report: AddReport) -> Group:
    """A report, for people."""
    counts = [f"{report.added} added", f"{report.unchanged} unchanged"]
    counts += [f"{report.removed} removed"] if report.removed else []
    counts += [f"{report.refused_count} refused"] if report.refused_count else []
    lines = [Text(f"{report.collection}: {', '.join(counts)}; {report.passages} new passages")]
    lines += [
        Text(visible(f"  refused  {name}: {reason}"), style="red") for name, reason in report.refused[:_MAX_SHOWN]
    ]
    if report.refused_count > _MAX_SHOWN:
        lines.append(Text(f"  and {report.refused_count - _MAX_SHOWN} more; --json lists them", style="red"))
    lines += [
        Text(visible(f"  guessed  {name}: {encoding}; --encoding names another"), style="yellow")
        for name, encoding in report.guessed[:_MAX_SHOWN]
    ]
    if report.tally.unknown_kind:
        lines.append(Text(f"  {report.tally.unknown_kind} files of other kinds in folders were left out", style="dim"))
    if report.tally.links:
        lines.append(Text(f"  {report.tally.links} links in folders were left out: name them to add them", style="dim"))
    if report.is_prune_skipped:
        lines.append(Text("  nothing was removed by --prune, since documents were refused", style="yellow"))
    return Group(*lines)


def collection_json(info: rag_pb2.CollectionInfo) -> dict[str, Any]:
    """A collection as JSON."""
    return {
        "collection": info.collection,
        "documents": info.documents,
        "passages": info.passages,
        "index_version": info.index_version,
        "embedder": info.embedder,
    }


def document_json(info: rag_pb2.DocumentInfo) -> dict[str, Any]:
    """A document as JSON."""
    return {
        "document_id": info.document_id,
        "title": info.title,
        "passages": info.passages,
        "expires_at_ms": info.expires_at_ms,
    }


def snapshot_json(info: rag_pb2.SnapshotInfo) -> dict[str, Any]:
    """A snapshot as JSON."""
    return {
        "snapshot": info.snapshot,
        "created_at_ms": info.created_at_ms,
        "size_bytes": info.size_bytes,
        "collections": [collection_json(one) for one in info.collections],
    }


def found_json(found: Found) -> dict[str, Any]:
    """A passage that was found, as JSON."""
    return {
        "collection": found.collection,
        "document_id": found.document_id,
        "passage": found.passage,
        "score": found.score,
        "text": found.text,
    }


def collections_view(infos: Sequence[rag_pb2.CollectionInfo]) -> Table:
    """Collections as a table."""
    table = _table("collection", "documents", "passages", "version", "embedder")
    for info in infos:
        table.add_row(info.collection, str(info.documents), str(info.passages), str(info.index_version), info.embedder)
    return table


def documents_view(infos: Sequence[rag_pb2.DocumentInfo]) -> Table:
    """Documents as a table."""
    table = _table("document", "passages", "title")
    for info in infos:
        table.add_row(Text(visible(info.document_id)), str(info.passages), Text(visible(info.title)))
    return table


def snapshots_view(infos: Sequence[rag_pb2.SnapshotInfo]) -> Table:
    """Snapshots as a table, a line for each collection."""
    table = _table("snapshot", "made", "MiB", "collection", "version", "documents")
    for info in infos:
        made = datetime.fromtimestamp(info.created_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        head = [info.snapshot, made, f"{info.size_bytes / 2**20:.1f}"]
        for one in info.collections or [rag_pb2.CollectionInfo()]:
            table.add_row(*head, one.collection, str(one.index_version), str(one.documents))
            head = ["", "", ""]
    return table


def found_view(found: Sequence[Found]) -> Group:
    """Passages, best first."""
    lines: list[Text] = []
    for number, one in enumerate(found, 1):
        lines.append(
            Text.assemble(
                (f"[{number}] {one.collection}/{one.document_id}", "bold"),
                (f"  passage {one.passage}, {one.score:.3f}", "dim"),
            )
        )
        lines += [Text(visible(one.text)), Text()]
    return Group(*lines[:-1])


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        is_number = name in {"documents", "passages", "version", "MiB"}
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    return table
