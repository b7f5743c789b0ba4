"""The commands about stored answers; they need a key with the scope `admin`."""

from typing import Annotated

import typer

from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, guard, mesh_client, out, print_json

cache_app = typer.Typer(help="Stored answers: on the cache service's host, and in Redis.", no_args_is_help=True)


@cache_app.command("flush")
def cache_flush(
    tenant: Annotated[str, typer.Option("--tenant", help="Whose answers. \\[the key's own tenant]")] = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Drop a tenant's stored answers everywhere, similar ones included. Answers that are being made store nothing."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        flushed = client.cache.flush(tenant)
        if as_json:
            print_json({"tenant": flushed})
        else:
            out.print(f"the stored answers of tenant {flushed} are gone; on every host within a second")


@cache_app.command("stats")
def cache_stats(
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show what the levels hold, and how often each has answered since the cache service started."""
    with guard(as_json), mesh_client(state_dir, target, timeout) as client:
        from ssop_cli.cache import cache_json, cache_lines, fill_of, state_line  # noqa: PLC0415

        stats = client.cache.stats()
        if as_json:
            print_json(cache_json(stats))
        else:
            for line in cache_lines(stats):
                out.print(line)
            if line := state_line(fill_of(stats)):
                out.print(f"state  {line}")
