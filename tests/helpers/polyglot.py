"""Clients in other languages: where they are and how they are built."""

import atexit
import fcntl
import os
import subprocess
import tempfile
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
    """Build a client on first use: once for all processes of a test run, since one may use it while another comes."""
    if language in _built:
        return
    script = HERE / language / "build.sh"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    built_file = Path(tempfile.gettempdir()) / f"ssop-{run}-{language}.built"
    with script.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built_file.exists():
            _built.add(language)
            return
        built = subprocess.run(
            ["sh", str(script)],
            capture_output=True,
            text=True,
            env={**os.environ, "PROTOC": f"{GENERATOR} -m grpc_tools.protoc"},
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        assert built.returncode == 0, built.stderr
        built_file.touch()
        atexit.register(built_file.unlink, missing_ok=True)
    _built.add(language)
