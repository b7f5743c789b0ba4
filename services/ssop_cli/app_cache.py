"""The commands about stored answers; they need a key with the scope `admin`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, guard, out, places_of, print_json

if TYPE_CHECKING:
    from ssop_sdk import SsopClient

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
    with guard(as_json), _client(state_dir, target, timeout) as client:
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
    with guard(as_json), _client(state_dir, target, timeout) as client:
        from ssop_cli.cache import cache_json, cache_lines, fill_of, state_line  # noqa: PLC0415

        stats = client.cache.stats()
        if as_json:
            print_json(cache_json(stats))
        else:
            for line in cache_lines(stats):
                out.print(line)
            if line := state_line(fill_of(stats)):
                out.print(f"state  {line}")


@contextmanager
def _client(state_dir: StateDir, target: Target, timeout_s: float) -> Iterator["SsopClient"]:
    from ssop_cli.mesh import find_access, mesh_errors  # noqa: PLC0415 - gRPC takes a while to import
    from ssop_sdk import SsopClient  # noqa: PLC0415

    access = find_access(places_of(state_dir), target)
    with mesh_errors(access), SsopClient(api_key=access.api_key, target=access.target, timeout_s=timeout_s) as client:
        yield client
