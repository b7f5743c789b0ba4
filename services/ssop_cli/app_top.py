"""`ssop top`."""

from typing import Annotated

import typer

from ssop_cli.terminal import StateDir, Target, guard, out, places_of


def top_command(
    interval: Annotated[float, typer.Option("--interval", min=0.2, max=60.0, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    state_dir: StateDir = None,
    target: Target = None,
) -> None:
    """Watch the mesh at work: services, nodes, limits, and the requests of the last minute. Ctrl-C ends it."""
    with guard(False):
        from ssop_cli.mesh import find_access  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.top import run_top  # noqa: PLC0415

        places = places_of(state_dir)
        run_top(find_access(places, target), places, out, interval_s=interval, looks=1 if once else 0)
