"""Clients in other languages: where they are and how they are built."""

import fcntl
import os
import subprocess
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
    """Build a client on first use; two test processes at once do it one after the other."""
    if language in _built:
        return
    script = HERE / language / "build.sh"
    with script.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(
            ["sh", str(script)],
            capture_output=True,
            text=True,
            env={**os.environ, "PROTOC": f"{GENERATOR} -m grpc_tools.protoc"},
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    assert built.returncode == 0, built.stderr
    _built.add(language)
