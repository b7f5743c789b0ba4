"""Entry point of the `ssop` command."""

import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

EXTRAS: Final = {"typer": "cli", "rich": "cli"}


def run() -> NoReturn:
    """Run the command line; exit codes are those of `failure`."""
    missing = {extra for module, extra in EXTRAS.items() if find_spec(module) is None}
    if missing:
        what = ",".join(sorted(missing))
        sys.stderr.write(f"ssop: the command needs more packages: pip install 'ssop-mesh[{what}]'\n")
        sys.stderr.write("      pip install 'ssop-mesh[embedded]' brings a whole mesh for one machine\n")
        sys.exit(1)
    # Its own lines about failed handshakes would stand before the command's error; read when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from ssop_cli.app import run_app  # noqa: PLC0415 - needs the extras that were looked for above

    run_app()


if __name__ == "__main__":
    run()
