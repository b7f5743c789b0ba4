"""The environment of a process that a test starts."""

import os
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).resolve().parents[1]
_TRANSPORT: Final = "SSOP_MESH_TRANSPORT"
"""What tests are run on is for who runs them to choose, for all processes alike."""


def child_environ() -> dict[str, str]:
    """That of this process, in which helpers are found, without settings of the mesh but for its transport."""
    environ = {name: value for name, value in os.environ.items() if name == _TRANSPORT or not name.startswith("SSOP_")}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(_TESTS)]))
    return environ
