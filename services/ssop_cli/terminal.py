"""What all commands share: options, the consoles, and how they end."""

import contextlib
import errno
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ssop_cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from ssop_cli.places import Places, find_places, find_state_dir

if TYPE_CHECKING:
    from ssop_sdk import SsopClient


class Tier(StrEnum):
    """A tier of the default mesh."""

    LITE = "lite"
    FULL = "full"


StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="Where the mesh keeps its things. Else SSOP_STATE_DIR, $XDG_STATE_HOME/ssop, ~/.local/state/ssop.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Target = Annotated[
    str | None,
    typer.Option("--target", help="The router, host:port. Else SSOP_TARGET, else the mesh of the state directory."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one call.")]
Policy = Annotated[
    str,
    typer.Option(
        "--policy", help="Words of auto, lite, full, cache_only, no_cache, no_rag, cascade; joined by commas."
    ),
]
Model = Annotated[str, typer.Option("--model", help="A model name that the router maps to a tier.")]
ModelsDir = Annotated[
    Path | None, typer.Option("--models-dir", help="The model store; else `models` in the state directory.")
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_ROOM_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

# A pipe has no width, and 80 columns would fold what grep is to find.
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)
err = Console(stderr=True, highlight=False)


@contextlib.contextmanager
def guard(is_json: bool) -> Iterator[None]:
    """Errors as one line on standard error and an exit code, whatever happens."""
    try:
        yield
    except CommandError as error:
        _tell(error, is_json=is_json)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None
    except (typer.Exit, typer.Abort):
        raise
    except OSError as error:
        # A full disk or missing rights are no fault of this program.
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        advice = "make room, or name another place with --state-dir" if error.errno in _ROOM_ERRORS else ""
        _tell(CommandError(what, advice=advice), is_json=is_json)
        raise typer.Exit(EXIT_FAILED) from None
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user gets a sentence, never a traceback
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        err.print(Text(f"ssop: a fault of this program: {type(error).__name__}: {error} ({where})"), soft_wrap=True)
        if isinstance(error, ImportError) and str(error.path).endswith(".so"):
            err.print(Text("      compiled parts are older than the sources: make ext", style="dim"), soft_wrap=True)
        raise typer.Exit(EXIT_FAILED) from None


def _tell(error: CommandError, *, is_json: bool) -> None:
    if is_json:
        print_json({"error": {"reason": error.reason, "message": error.message, "advice": error.advice}})
    err.print(Text.assemble(("ssop: ", "bold red"), visible(error.message)), soft_wrap=True)
    if error.advice:
        err.print(Text(visible(f"      {error.advice}"), style="dim"), soft_wrap=True)


def visible(text: str) -> str:
    """A text from elsewhere for a terminal: what would move the cursor or change colours is shown as a blot."""
    return _CONTROL.sub("\ufffd", text)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def places_of(state_dir: Path | None) -> Places:
    """The places of a mesh, for what --state-dir said."""
    return find_places(find_state_dir(state_dir, os.environ), os.environ)


@contextlib.contextmanager
def mesh_client(state_dir: StateDir, target: Target, timeout_s: float) -> Iterator["SsopClient"]:
    """A client of the mesh that the options of a command name. Raises CommandError, for its calls too."""
    from ssop_cli.mesh import find_access, open_client  # noqa: PLC0415 - gRPC takes a while to import

    with open_client(find_access(places_of(state_dir), target), timeout_s) as client:
        yield client


def need_embedded() -> None:
    """Raise CommandError unless the packages of the services are there."""
    missing = [name for name in ("pydantic", "grpc_health", "uvloop", "redis") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this command needs the packages of the services; missing: {', '.join(missing)}",
            advice="pip install 'ssop-mesh[embedded]'",
            reason="EXTRA_MISSING",
        )


def need_server() -> None:
    """Raise CommandError unless the packages of a service are there."""
    missing = [name for name in ("pydantic", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this command needs the packages of the router; missing: {', '.join(missing)}",
            advice="pip install 'ssop-mesh[server]'",
            reason="EXTRA_MISSING",
        )


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
