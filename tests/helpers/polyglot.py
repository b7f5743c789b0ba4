"""Clients in other languages: where they are and how they are built."""

import atexit
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from helpers.components import GENERATOR

HERE: Final = Path(__file__).resolve().parents[1] / "polyglot"
BUILD_TIMEOUT_S: Final = 600
LANGUAGES: Final = {
    "go": (str(HERE / "go" / "build" / "client"),),
    "java": ("java", "-cp", f"{HERE}/java/build/classes:{HERE}/java/build/lib/*", "dev.ssop.example.Main"),
    "rust": (str(HERE / "rust" / "build" / "debug" / "ssop-polyglot-rust"),),
    "typescript": ("node", str(HERE / "typescript" / "build" / "main.js")),
}
"""What runs each of them."""
COMPONENTS: Final = {"go": "go", "java": "maven", "rust": "cargo", "typescript": "npm"}
_built: set[str] = set()


def build_client(language: str) -> None:
    """Build a client on first use. Raises RuntimeError with what the build said."""
    build_once(language, ["sh", str(HERE / language / "build.sh")])


def build_once(name: str, command: Sequence[str]) -> None:
    """Build something once for all processes of a test run: one may use it while another comes to build it.

    Raises RuntimeError with what the build said.
    """
    if name in _built:
        return
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    built_file = Path(tempfile.gettempdir()) / f"ssop-{run}-{name}.built"
    # Programs lend each other their libraries: one is built at a time.
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built_file.exists():
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env={**os.environ, "PROTOC": f"{GENERATOR} -m grpc_tools.protoc"},
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0:
                raise RuntimeError(done.stderr)
            built_file.touch()
            atexit.register(built_file.unlink, missing_ok=True)
    _built.add(name)
