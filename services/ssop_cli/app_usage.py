"""`ssop usage`."""

from typing import Annotated

import typer

from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, guard, mesh_client, out, print_json


def usage_command(  # noqa: PLR0917 - each is an option, given by name
    days: Annotated[int, typer.Option("--days", min=1, max=62, help="Days, today's included.")] = 7,
    tenant: Annotated[str, typer.Option("--tenant", help="Another tenant's; needs a key with the scope admin.")] = "",
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show what a tenant used, by day and tier, with its cost; prefetches told apart."""
    with guard(as_json):
        from ssop_cli.usage import usage_json, usage_table  # noqa: PLC0415 - gRPC takes a while to import

        with mesh_client(state_dir, target, timeout) as client:
            found = client.usage(days, tenant=tenant)
        if as_json:
            print_json(usage_json(found))
        elif not found.days:
            out.print(f"tenant {found.tenant} used nothing in {days} days")
        else:
            out.print(f"tenant {found.tenant}")
            out.print(usage_table(found))
