"""`ssop backend`: model servers."""

from pathlib import Path
from typing import Annotated

import typer

from ssop_cli.terminal import AsJson, guard, need_server, out, print_json, visible

backend_app = typer.Typer(help="Model servers.", no_args_is_help=True)


@backend_app.command("probe")
def probe_command(  # noqa: PLR0917 - each is an option, given by name
    url: Annotated[str, typer.Argument(help="The base URL of the server's API, such as http://127.0.0.1:8000/v1.")],
    kind: Annotated[str, typer.Option("--backend", help="openai or anthropic.")] = "openai",
    model: Annotated[str, typer.Option("--model", help="The model's name there; else the first one.")] = "",
    key_file: Annotated[Path | None, typer.Option("--key-file", help="File with the key, mode 0600.")] = None,
    dialect: Annotated[str, typer.Option("--dialect", help="How it is told a schema; auto finds out.")] = "auto",
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for all of it.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Find out what a server can do, by doing it: schemas, probabilities, load, whether a cancel frees its slot."""
    with guard(as_json):
        need_server()
        from ssop_cli.backend import find_out, probe_json, probe_lines  # noqa: PLC0415 - takes a while to import

        found = find_out(url, kind=kind, model=model, key_file=key_file, dialect=dialect, timeout_s=timeout)
        if as_json:
            print_json(probe_json(found))
        else:
            for name, text in probe_lines(found):
                out.print(f"{name:<14}{visible(text)}", markup=False, soft_wrap=True)
