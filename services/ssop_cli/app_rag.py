"""The commands `ssop rag ...`: retrieval as a tenant sees it."""

from pathlib import Path
from typing import Annotated

import typer

from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, err, guard, mesh_client, out, print_json

rag_app = typer.Typer(help="Retrieval. Needs a key with the scope rag.", no_args_is_help=True)


@rag_app.command("warm")
def rag_warm(  # noqa: PLR0917 - each is an option, given by name
    log: Annotated[Path, typer.Argument(help="JSON lines, each with `query` or `messages`; - is standard input.")],
    answers: Annotated[bool, typer.Option("--answers", help="Also generate, so that answers are stored.")] = False,
    collection: Annotated[list[str] | None, typer.Option("--collection", help="For lines that name none.")] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.01, max=1000, help="Lines a second.")] = 10.0,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Take at most so many different lines.")] = None,
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Prepare for a peak with the queries of an earlier one, the most frequent first."""
    with guard(as_json):
        from ssop_cli.warm import read_log, warm_up  # noqa: PLC0415 - gRPC takes a while to import

        entries = read_log(log, limit)
        with mesh_client(state_dir, target, timeout) as client:
            done = warm_up(client, entries, collections=collection or [], rate=rate, has_answers=answers)
        if as_json:
            print_json(done.as_json())
        else:
            out.print(f"{done.lines} different queries: {done.embedded} embedded, {done.known} known already", end="")
            out.print(f", {done.answered} answered" if answers else "")
        if done.failed:
            err.print(f"{done.failed} failed, the first with {done.first_failure}")
            raise typer.Exit(1)


@rag_app.command("usage")
def rag_usage(
    state_dir: StateDir = None, target: Target = None, timeout: Timeout = 10.0, as_json: AsJson = False
) -> None:
    """Show what the tenant's prefetches cost and saved since the retrieval service started."""
    with guard(as_json):
        from ssop_cli.warm import usage_json, usage_table  # noqa: PLC0415 - gRPC takes a while to import

        with mesh_client(state_dir, target, timeout) as client:
            usage = client.index.prefetch_usage()
        if as_json:
            print_json(usage_json(usage))
        else:
            out.print(usage_table(usage))
