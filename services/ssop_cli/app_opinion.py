"""The commands `ssop opinion ...`."""

import re
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from ssop_cli.app_opinion_reports import add_reports
from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, StateDir, err, guard, need_embedded, out, places_of, print_json, visible

opinion_app = typer.Typer(help="Opinion analysis of posts.", no_args_is_help=True)
add_reports(opinion_app)
_BURST: Final = re.compile(r"([0-9]+):([0-9]+)")


@opinion_app.command("run")
def opinion_run(
    source: Annotated[Path, typer.Option("--source", help='JSON lines with "text", and "id"; - is standard input.')],
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=256, help="Posts at the same time.")] = 4,
    state_dir: StateDir = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for one post.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Analyse the posts of a file; a mesh is started for it where none runs. Records stay in the state directory."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.opinion_run import RunOptions, run_posts, summary_table  # noqa: PLC0415 - needs [embedded]

        report = run_posts(RunOptions(places_of(state_dir), source, in_flight, timeout), out, err, is_quiet=as_json)
        if as_json:
            print_json(report.to_json())
        else:
            out.print()
            out.print(summary_table(report))
        if not report.is_good:
            raise typer.Exit(EXIT_FAILED)


@opinion_app.command("replay")
def opinion_replay(  # noqa: PLR0917 - each is an option, given by name
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Posts a second.")] = 200.0,
    duration: Annotated[float, typer.Option("--duration", min=0, help="Seconds of it.")] = 60.0,
    burst: Annotated[str, typer.Option("--burst", help="Then RATE:SECONDS, as 3000:10.")] = "",
    reposts: Annotated[float, typer.Option("--reposts", min=0, max=1, help="Share of near-identical posts.")] = 0.2,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1000, help="Most posts of a request.")] = 100,
    state_dir: Annotated[Path | None, typer.Option("--state-dir", help="A new folder; else one for the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put load on a mesh that is made for it, with a replayed model (total time p50 600 ms, p99 1,200 ms)."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.opinion_load import run_load  # noqa: PLC0415 - needs [embedded]
        from ssop_cli.opinion_load_mesh import LoadOptions  # noqa: PLC0415

        found = _BURST.fullmatch(burst)
        if burst and found is None:
            raise CommandError("--burst is RATE:SECONDS, such as 3000:10", exit_code=EXIT_USAGE)
        burst_rate, burst_s = (float(found[1]), float(found[2])) if found is not None else (0.0, 0.0)
        options = LoadOptions(rate, duration, burst_rate, burst_s, repost_share=reposts, batch=batch)
        if state_dir is not None:
            report = run_load(places_of(state_dir), options, err)
        else:
            with tempfile.TemporaryDirectory(prefix="ssop-load-") as folder:
                report = run_load(places_of(Path(folder) / "state"), options, err)
        print_json(report.to_json())
        if report.lost:
            raise typer.Exit(EXIT_FAILED)


@opinion_app.command("dead")
def opinion_dead(
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="How many.")] = 50,
    revive: Annotated[bool, typer.Option("--revive", help="Queue the posts of the oldest ones again.")] = False,
    config: Annotated[Path | None, typer.Option("--config", help="An ssop.toml with a section \\[opinion].")] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what did not become a record, and why; the newest first."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.opinion_dead import read_dead, revive_dead  # noqa: PLC0415 - needs [server]
        from ssop_cli.opinion_reports import find_office  # noqa: PLC0415

        office = find_office(config, places_of(state_dir))
        if revive:
            revived = revive_dead(office, count)
            if as_json:
                print_json({"revived": revived})
            else:
                out.print(f"{revived} posts are queued again")
            return
        letters = read_dead(office, count)
        if as_json:
            print_json(letters)
            return
        for letter in letters:
            where = f"{letter['tenant']}/{letter['source']}"
            out.print(visible(f"{letter['id']}  {letter['reason']}  {where}  {letter['size_bytes']} bytes"))
        out.print(f"{len(letters)} dead letters")
