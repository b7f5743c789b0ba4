"""The commands: options, the call of what does the work, and what is printed.

Exit codes are those of `failure`. With --json one JSON document goes to standard output; everything else that is said
goes to standard error.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from ssop_cli import posts as posts_
from ssop_cli.app_backend import backend_app
from ssop_cli.app_cache import cache_app
from ssop_cli.app_drill import drill_command
from ssop_cli.app_index import index_app
from ssop_cli.app_keys import keys_app
from ssop_cli.app_opinion import opinion_app
from ssop_cli.app_rag import rag_app
from ssop_cli.app_route import route_app
from ssop_cli.app_store import doctor as doctor_command
from ssop_cli.app_store import models_app
from ssop_cli.app_top import top_command
from ssop_cli.app_trace import trace_command
from ssop_cli.app_usage import usage_command
from ssop_cli.failure import EXIT_FAILED, EXIT_NO_MESH, EXIT_USAGE, CommandError
from ssop_cli.terminal import (
    AsJson,
    Model,
    ModelsDir,
    Policy,
    StateDir,
    Target,
    Timeout,
    err,
    guard,
    need_embedded,
    now_ms,
    out,
    places_of,
    print_json,
    visible,
)

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
app.add_typer(schema_app, name="schema")
app.add_typer(models_app, name="models")
app.add_typer(backend_app, name="backend")
app.add_typer(keys_app, name="keys")
app.add_typer(cache_app, name="cache")
app.add_typer(route_app, name="route")
app.add_typer(opinion_app, name="opinion")
app.add_typer(index_app, name="index")
app.add_typer(rag_app, name="rag")
app.command("doctor")(doctor_command)
app.command("usage")(usage_command)
app.command("trace")(trace_command)
app.command("top")(top_command)
app.command("drill")(drill_command)


def run_app() -> NoReturn:
    """Run the command line."""
    app()
    raise SystemExit(0)


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
    http_port: Annotated[
        int | None, typer.Option("--http-port", min=0, max=65535, help="Port of the HTTP edge; 0: any. [7380]")
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Start no HTTP edge.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a mesh on this machine and keep it running: caches, retrieval, a model, the router, the HTTP edge."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.detached import run_detached  # noqa: PLC0415 - needs the extra [embedded]
        from ssop_cli.up import UpOptions, run_up  # noqa: PLC0415 - needs the extra [embedded]

        places = places_of(state_dir)
        if config is not None and port is not None:
            raise CommandError(
                "--port and --config exclude each other", advice="set listen in [router]", exit_code=EXIT_USAGE
            )
        if config is not None and (http_port is not None or no_http):
            raise CommandError(
                "--http-port, --no-http and --config exclude each other",
                advice="the section [gateway] says whether there is an HTTP edge, and where",
                exit_code=EXIT_USAGE,
            )
        options = UpOptions(places, port, config, models_dir, model, http_port, not no_http)
        if not detach:
            run_up(options, err if as_json else out, on_report=print_json if as_json else None)
            return
        arguments = ["--state-dir", str(places.state)]
        arguments += [] if not model else ["--model", model]
        arguments += [] if port is None else ["--port", str(port)]
        arguments += [] if http_port is None else ["--http-port", str(http_port)]
        arguments += ["--no-http"] if no_http else []
        arguments += [] if config is None else ["--config", str(config.expanduser().absolute())]
        arguments += [] if models_dir is None else ["--models-dir", str(models_dir.expanduser().absolute())]
        report = run_detached(places, arguments, err if as_json else out)
        if as_json:
            print_json(report.to_json())


@app.command()
def down(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Stop the mesh: calls that run may finish."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.detached import run_down  # noqa: PLC0415 - needs the extra [embedded]

        was_running = run_down(places_of(state_dir), lambda text: err.print(text, soft_wrap=True))
        if as_json:
            print_json({"was_running": was_running})
        else:
            out.print("the mesh is down" if was_running else "no mesh runs on this state directory", soft_wrap=True)


@app.command()
def reload(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Make the services read their settings again; what can't change while they run waits for a restart."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.reload import reload_mesh  # noqa: PLC0415 - needs the extra [embedded]

        places = places_of(state_dir)
        told = reload_mesh(places)
        if as_json:
            print_json({"told": told})
        else:
            out.print(f"told {', '.join(told) or 'no service'}; what changed is in {places.log('router').parent}")


@app.command()
def status(state_dir: StateDir = None, target: Target = None, timeout: Timeout = 5.0, as_json: AsJson = False) -> None:
    """Show services, nodes, stores and frames."""
    with guard(as_json):
        from ssop_cli.mesh import find_access  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.status import ask_status, local_report, status_json, status_view  # noqa: PLC0415

        places = places_of(state_dir)
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
            print_json(status_json(report, answer, fault))
        else:
            out.print(status_view(report, answer, access, now_ms()))
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
    collection: Annotated[
        list[str] | None, typer.Option("--collection", help="Collection to search; else all of them.")
    ] = None,
    cite: Annotated[bool, typer.Option("--cite", help="Answer with the numbers of its passages.")] = False,
    top_k: Annotated[int, typer.Option("--top-k", min=0, max=32, help="Passages to draw on; 0: 4.")] = 0,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask once; fields or text appear as they arrive."""
    with guard(as_json):
        from ssop_cli.ask import AskOptions, delivery_line, run_ask, source_lines  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        text = sys.stdin.read() if prompt == "-" else prompt
        if not text.strip():
            raise CommandError("the prompt is empty", exit_code=EXIT_USAGE)
        if cite and schema is not None:
            raise CommandError(
                "--cite and --schema exclude each other",
                advice="a schema of yours may have a field for the numbers of passages",
                exit_code=EXIT_USAGE,
            )
        wanted = posts_.read_object(schema) if schema is not None else None
        access = find_access(places_of(state_dir), target)
        options = AskOptions(text, wanted, model, policy, timeout, tuple(collection or ()), top_k, cite)
        answer = run_ask(access, options, out, is_json=as_json)
        if as_json:
            print_json(answer)
        else:
            for line in (*source_lines(answer, is_cited=cite), delivery_line(answer)):
                err.print(Text(visible(line), style="dim"), soft_wrap=True)
        if answer["verdict"] != "ok":
            err.print(Text(visible(f"ssop: the answer is {answer['verdict']}: {answer['error']}"), style="red"))
            raise typer.Exit(EXIT_FAILED)


@app.command()
def analyze(  # noqa: PLR0917 - each is an option, given by name
    file: Annotated[
        Path | None, typer.Argument(help='JSON lines with "text" and "id"; else the posts that ship.')
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many posts.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=256, help="Posts in flight.")] = 4,
    schema: Annotated[Path | None, typer.Option("--schema", help="Another schema than the one of posts.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Write one JSON line a post to this file.")] = None,
    model: Model = "",
    policy: Policy = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one post.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Analyse posts: twelve checked fields each, shown as they arrive."""
    with guard(as_json):
        from ssop_cli import analyze as job  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415
        from ssop_cli.status import served_models  # noqa: PLC0415

        posts = posts_.read_posts(file, limit)
        options = job.AnalyzeOptions(
            batch_size,
            timeout,
            policy,
            model,
            posts_.read_schema(schema),
            posts_.Asker(has_own_schema=schema is not None),
        )
        access = find_access(places_of(state_dir), target)
        outcomes, summary = job.run_analyze(posts, access, options, out, is_quiet=as_json)
        if out_file is not None:
            job.write_results(out_file, outcomes, posts)
        if as_json:
            results = [job.outcome_json(outcome) for outcome in outcomes]
            print_json({"summary": summary.to_json(), "results": results})
        else:
            out.print()
            out.print(job.summary_table(summary))
            if note := job.honesty(summary.models or served_models(access)):
                out.print(Text(f"\n{note}", style="yellow"))
            if out_file is not None:
                out.print(f"results: {out_file}", soft_wrap=True)
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
    with guard(as_json):
        from ssop_cli.ask import check_schema, schema_json, schema_view  # noqa: PLC0415
        from ssop_cli.mesh import find_access  # noqa: PLC0415

        wanted = posts_.read_object(file)
        found = schema_json(check_schema(find_access(places_of(state_dir), target), wanted, timeout))
        if as_json:
            print_json(found)
        else:
            out.print(schema_view(found))
