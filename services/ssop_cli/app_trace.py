"""`ssop trace`."""

from typing import Annotated

import typer

from ssop_cli.failure import EXIT_USAGE, CommandError
from ssop_cli.terminal import AsJson, StateDir, Target, Timeout, guard, mesh_client, out, print_json


def trace_command(
    request_id: Annotated[str, typer.Argument(help="Id of the request: in logs, trailers and `stream.request_id`.")],
    state_dir: StateDir = None,
    target: Target = None,
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show what happened to one of the last requests: stages, frames, times. Holds no prompt and no value."""
    with guard(as_json):
        from ssop_cli.trace import describe_ending, trace_json, trace_table  # noqa: PLC0415 - gRPC takes a while to import
        from ssop_sdk.request import check_request_id  # noqa: PLC0415

        try:
            check_request_id(request_id)
        except ValueError as error:
            raise CommandError(str(error), exit_code=EXIT_USAGE) from None
        with mesh_client(state_dir, target, timeout) as client:
            found = client.trace(request_id)
        if as_json:
            print_json(trace_json(found))
            return
        out.print(trace_table(found))
        for line in describe_ending(found):
            out.print(line)
