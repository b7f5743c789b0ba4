"""`ssop usage`."""

from typing import Annotated

import typer

from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, guard, out, places_of, print_json


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
        from ssop_cli.mesh import find_access, mesh_errors  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_cli.usage import usage_json, usage_table  # noqa: PLC0415
        from ssop_sdk import SsopClient  # noqa: PLC0415

        access = find_access(places_of(state_dir), target)
        with mesh_errors(access), SsopClient(api_key=access.api_key, target=access.target, timeout_s=timeout) as client:
            found = client.usage(days, tenant=tenant)
        if as_json:
            print_json(usage_json(found))
        elif not found.days:
            out.print(f"tenant {found.tenant} used nothing in {days} days")
        else:
            out.print(f"tenant {found.tenant}")
            out.print(usage_table(found))
