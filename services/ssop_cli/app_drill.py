"""`ssop drill`."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ssop_cli.failure import EXIT_FAILED, EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, ModelsDir, err, guard, need_embedded, out, places_of, print_json


def drill_command(  # noqa: PLR0917 - each is an option, given by name
    fault: Annotated[
        list[str] | None, typer.Option("--fault", help="Only this fault; may be repeated. Else all of them.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Makes the prompts of the load repeatable.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Drill the mesh that runs there, instead of one of its own.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, harm the mesh of --state-dir.")] = False,
    models_dir: ModelsDir = None,
    model: Annotated[str, typer.Option("--model", help="Model of the drill's own mesh; else a small one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Break a running mesh in every way of a list, under load, and show what clients saw."""
    with guard(as_json):
        need_embedded()
        from ssop_cli.drill import drill, rig, view  # noqa: PLC0415 - needs the extra [embedded]
        from ssop_cli.drill.faults import choose_faults  # noqa: PLC0415
        from ssop_cli.drill.ledger import Tally  # noqa: PLC0415

        has_rig = state_dir is None
        faults = choose_faults(fault or [], has_rig=has_rig)
        number = secrets.randbelow(2**31) if seed is None else seed
        say = err if as_json else out

        def seen(found: Tally) -> None:
            err.print(Text(f"{found.name}: {'held' if found.is_good else 'BROKEN'} ({found.how})"), soft_wrap=True)

        if state_dir is not None:
            if not yes:
                raise CommandError(
                    "a drill kills services and flushes the cache of the mesh that it is given",
                    advice="add --yes if that is meant, or leave --state-dir out for a mesh of the drill's own",
                    exit_code=EXIT_USAGE,
                )
            report = drill.run_drill(places_of(state_dir), faults, number, seen=seen)
        else:
            store = (models_dir or places_of(None).state / "models").expanduser().absolute()
            with rig.own_mesh(store, model, say, number) as own:
                report = drill.run_drill(own.places, faults, number, seen=seen, rig=own)
        if as_json:
            print_json(view.drill_json(report, number, has_rig=has_rig))
        else:
            out.print(view.drill_table(report.tallies))
            for line in view.remarks(report):
                out.print(Text(line, style="dim"), soft_wrap=True)
            for line in view.complaints(report):
                out.print(Text(line, style="red"), soft_wrap=True)
            out.print(view.verdict(report, number, has_rig=has_rig), soft_wrap=True)
        if not report.is_good:
            raise typer.Exit(EXIT_FAILED)
