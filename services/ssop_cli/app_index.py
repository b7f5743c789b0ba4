"""The commands `ssop index ...`: documents for answers to draw on."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, err, guard, out, places_of, print_json

index_app = typer.Typer(help="Documents for answers to draw on.", no_args_is_help=True)
snapshot_app = typer.Typer(help="Collections as they were.", no_args_is_help=True)
index_app.add_typer(snapshot_app, name="snapshot")


class Format(StrEnum):
    """A kind of file."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"
    JSONL = "jsonl"


DEFAULT_COLLECTION = "documents"
Collection = Annotated[str, typer.Option("--collection", help="The collection; made when it is not there.")]
Snapshot = Annotated[str, typer.Argument(help="Name of the snapshot: letters, digits, _ and -.")]
Some = Annotated[list[str] | None, typer.Option("--collection", help="A collection; else all of them.")]


@index_app.command("add")
def index_add(  # noqa: PLR0917 - each is an option, given by name
    paths: Annotated[list[str], typer.Argument(help="Files, folders, patterns; - is standard input.")],
    collection: Collection = DEFAULT_COLLECTION,
    base: Annotated[
        Path | None, typer.Option("--base", help="Ids are paths from here. Else from the working directory.")
    ] = None,
    kind: Annotated[
        Format | None, typer.Option("--format", help="What the files are; else told by their names.")
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="Encoding of the files; else found out.")] = "",
    stdin_id: Annotated[str, typer.Option("--id", help="Id of the document on standard input.")] = "stdin",
    id_field: Annotated[str, typer.Option("--id-field", help="JSON Lines: field of the id.")] = "id",
    text_field: Annotated[str, typer.Option("--text-field", help="JSON Lines: field of the text.")] = "text",
    title_field: Annotated[str, typer.Option("--title-field", help="JSON Lines: field of the title.")] = "title",
    max_mib: Annotated[
        float, typer.Option("--max-mib", min=0.001, max=512, help="Largest file; JSON Lines apart.")
    ] = 32,
    parse_timeout: Annotated[float, typer.Option("--parse-timeout", min=0.1, help="Seconds to read one file.")] = 30,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete documents of the collection that are not named.")
    ] = False,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one call.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Index text, Markdown, HTML, PDF and JSON Lines. What is there unchanged costs nothing."""
    with guard(as_json):
        from ssop_cli.documents.adding import AddOptions  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.documents.jsonl import Fields  # noqa: PLC0415
        from ssop_cli.index import add_view, run_add  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        options = AddOptions(
            names=paths,
            collection=collection,
            base=Path(os.path.normpath(Path.cwd() / (base or ""))),
            kind=kind.value if kind is not None else None,
            encoding=encoding,
            stdin_id=stdin_id,
            fields=Fields(id_field, text_field, title_field),
            max_bytes=int(max_mib * 2**20),
            parse_timeout_s=parse_timeout,
            is_pruned=prune,
            timeout_s=timeout,
        )
        report, fault = run_add(find_access(places_of(state_dir), target), options, err, is_json=as_json)
        if as_json:
            print_json({**report.to_json(), "error": fault})
        else:
            out.print(add_view(report), soft_wrap=True)
        if fault:
            raise CommandError(
                fault, advice="do it again to go on: what is indexed costs nothing", exit_code=EXIT_FAILED
            )
        if not report.added + report.unchanged + report.removed + report.refused_count:
            raise CommandError("there was nothing to index", advice="'ssop index add --help' names the kinds of files")
        if report.refused_count:
            raise typer.Exit(EXIT_FAILED)


@index_app.command("list")
def index_list(
    collection: Annotated[str, typer.Argument(help="A collection, to list its documents.")] = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """List the collections, or the documents of one."""
    with guard(as_json):
        from ssop_cli import index  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with index.connect(find_access(places_of(state_dir), target), timeout) as client:
            if collection:
                documents = list(client.index.documents(collection))
                found = [index.document_json(one) for one in documents]
                view = index.documents_view(documents)
            else:
                collections = client.index.collections()
                found = [index.collection_json(one) for one in collections]
                view = index.collections_view(collections)
        if as_json:
            print_json({"documents" if collection else "collections": found})
        else:
            out.print(view if found else "none")


@index_app.command("search")
def index_search(  # noqa: PLR0917 - each is an option, given by name
    query: Annotated[str, typer.Argument(help="What to look for.")],
    collection: Some = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=32, help="Passages to show.")] = 4,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Show the passages that a question would find."""
    with guard(as_json):
        from ssop_cli import index  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with index.connect(find_access(places_of(state_dir), target), timeout) as client:
            found = client.index.search(query, collection or (), top_k=top_k)
        if as_json:
            print_json({"passages": [index.found_json(one) for one in found]})
        else:
            out.print(index.found_view(found) if found else "nothing found", soft_wrap=True)


@index_app.command("delete")
def index_delete(  # noqa: PLR0917 - each is an option, given by name
    documents: Annotated[
        list[str] | None, typer.Argument(help="Ids, as 'ssop index list COLLECTION' shows them.")
    ] = None,
    collection: Collection = DEFAULT_COLLECTION,
    everything: Annotated[bool, typer.Option("--all", help="Delete the collection.")] = False,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Delete documents, or a whole collection."""
    with guard(as_json):
        from ssop_cli.index import connect  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        if everything == bool(documents):
            raise CommandError("give ids, or --all, not both", exit_code=EXIT_USAGE)
        with connect(find_access(places_of(state_dir), target), timeout) as client:
            index = client.index
            deleted = index.delete_collection(collection) if everything else index.delete(collection, documents or ())
        if as_json:
            print_json({"deleted": deleted})
        else:
            out.print(f"{deleted} documents deleted")


@snapshot_app.command("save")
def snapshot_save(  # noqa: PLR0917 - each is an option, given by name
    name: Snapshot,
    collection: Some = None,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 300.0,
    as_json: AsJson = False,
) -> None:
    """Keep the collections as they are at this instant, on the mesh's disk."""
    with guard(as_json):
        from ssop_cli import index  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with index.connect(find_access(places_of(state_dir), target), timeout) as client:
            info = client.index.save_snapshot(name, collection or ())
        if as_json:
            print_json(index.snapshot_json(info))
        else:
            out.print(index.snapshots_view([info]))


@snapshot_app.command("list")
def snapshot_list(
    state_dir: StateDir = None, target: Target = None, timeout: Timeout = 30.0, as_json: AsJson = False
) -> None:
    """List the snapshots with the versions of their collections."""
    with guard(as_json):
        from ssop_cli import index  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with index.connect(find_access(places_of(state_dir), target), timeout) as client:
            infos = client.index.snapshots()
        if as_json:
            print_json({"snapshots": [index.snapshot_json(one) for one in infos]})
        else:
            out.print(index.snapshots_view(infos) if infos else "none")


@snapshot_app.command("restore")
def snapshot_restore(
    name: Snapshot,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 300.0,
    as_json: AsJson = False,
) -> None:
    """Put the collections of a snapshot back; other collections stay as they are."""
    with guard(as_json):
        from ssop_cli import index  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with index.connect(find_access(places_of(state_dir), target), timeout) as client:
            infos = client.index.restore_snapshot(name)
        if as_json:
            print_json({"collections": [index.collection_json(one) for one in infos]})
        else:
            out.print(index.collections_view(infos))


@snapshot_app.command("delete")
def snapshot_delete(
    name: Snapshot,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Delete a snapshot."""
    with guard(as_json):
        from ssop_cli.index import connect  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        with connect(find_access(places_of(state_dir), target), timeout) as client:
            is_deleted = client.index.delete_snapshot(name)
        if as_json:
            print_json({"is_deleted": is_deleted})
        else:
            out.print(Text("deleted" if is_deleted else "there was none"))
