"""The commands `ssop route ...`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ssop_cli import posts as posts_
from ssop_cli.failure import EXIT_USAGE, CommandError
from ssop_cli.terminal import (
    AsJson,
    Model,
    Policy,
    StateDir,
    Target,
    Timeout,
    guard,
    need_server,
    out,
    places_of,
    print_json,
)

route_app = typer.Typer(help="How requests find their tier.", no_args_is_help=True)


@route_app.command("explain")
def route_explain(  # noqa: PLR0917 - each is an option, given by name
    prompt: Annotated[str, typer.Argument(help="The request; - reads it from standard input.")],
    schema: Annotated[Path | None, typer.Option("--schema", help="JSON Schema of the answer.")] = None,
    model: Model = "",
    policy: Policy = "",
    collection: Annotated[list[str] | None, typer.Option("--collection", help="Collection to search.")] = None,
    conversation: Annotated[str, typer.Option("--conversation", help="Conversation that it belongs to.")] = "",
    local: Annotated[bool, typer.Option("--local", help="Decide in this process, without a mesh.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="With --local: settings with a policy.")] = None,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show where a request would go and why, without running it."""
    with guard(as_json):
        from ssop_cli.mesh import find_access  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.route import (  # noqa: PLC0415
            ExplainOptions,
            ask_explanation,
            explain_locally,
            explanation_view,
        )

        text = sys.stdin.read() if prompt == "-" else prompt
        if not text.strip():
            raise CommandError("the prompt is empty", exit_code=EXIT_USAGE)
        if config is not None and not local:
            raise CommandError("--config goes with --local", exit_code=EXIT_USAGE)
        wanted = posts_.read_object(schema) if schema is not None else None
        options = ExplainOptions(text, wanted, model, policy, tuple(collection or ()), conversation, timeout)
        if local:
            need_server()
            found = explain_locally(options, config)
        else:
            found = ask_explanation(find_access(places_of(state_dir), target), options)
        if as_json:
            print_json(found)
        else:
            out.print(explanation_view(found))


@route_app.command("replay")
def route_replay(
    log: Annotated[Path, typer.Argument(help="A decision log: `decision_log` of \\[router].")],
    policy: Annotated[Path, typer.Option("--policy", help="TOML with keys of \\[router].")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw it: a file that ends in .svg, .png or .pdf.")
    ] = None,
    rescore: Annotated[bool, typer.Option("--rescore", help="Score the log's texts anew, where it has them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Decide a log anew under another policy: tiers, cost and times."""
    with guard(as_json):
        need_server()
        from ssop_cli.replay import replay_json, replay_view, run_replay, write_plot  # noqa: PLC0415

        replay = run_replay(log, policy, rescore=rescore)
        if plot is not None:
            write_plot(replay, plot)
        if as_json:
            print_json(replay_json(replay))
        else:
            out.print(replay_view(replay))
            if plot is not None:
                out.print(f"plot: {plot}", soft_wrap=True)


@route_app.command("cascade")
def route_cascade(
    log: Annotated[Path, typer.Argument(help="A decision log: `decision_log` of \\[router].")],
    share: Annotated[
        float | None, typer.Option("--share", help="Share of cascades that full is to take over, from 0 to 1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the `cascade_min_confidence` that sends a share of such requests to the full tier."""
    with guard(as_json):
        need_server()
        from ssop_cli.cascade import calibrate, calibration_json, calibration_view  # noqa: PLC0415

        found = calibrate(log, share)
        if as_json:
            print_json(calibration_json(found))
        else:
            out.print(calibration_view(found))


@route_app.command("calibrate")
def route_calibrate(
    file: Annotated[Path, typer.Argument(help="Texts: JSON Lines with `text`, a decision log, or one prompt a line.")],
    share: Annotated[
        float | None, typer.Option("--share", help="Share of requests that are to go to full, from 0 to 1.")
    ] = None,
    classifier: Annotated[Path | None, typer.Option("--classifier", help="An artefact; else the shipped one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the `score.threshold` that sends a share of such requests to the full tier."""
    with guard(as_json):
        need_server()
        from ssop_cli.route_training import (  # noqa: PLC0415 - NumPy and ONNX Runtime
            calibrate,
            calibration_json,
            calibration_view,
            open_classifier,
        )

        found = calibrate(file, share, open_classifier(classifier))
        if as_json:
            print_json(calibration_json(found))
        else:
            out.print(calibration_view(found))


@route_app.command("train")
def route_train(
    labels: Annotated[
        Path,
        typer.Argument(help="JSON Lines: `text` with `label` (lite, full) or `weak` and `strong`; maybe `source`."),
    ],
    out_file: Annotated[Path, typer.Option("--out", help="The artefact to write.")] = Path("classifier.onnx"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on labels of your own; `classifier_file` in \\[router] names it."""
    with guard(as_json):
        need_server()
        from ssop_cli.route_training import train_classifier, training_view  # noqa: PLC0415

        found = train_classifier(labels, out_file, force=force)
        if as_json:
            print_json(found)
        else:
            out.print(training_view(found))
