"""`ssop drill` as a user runs it, for tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from helpers.live_mesh import models_cache

_TIMEOUT_S = 1_200.0


def run_drill(folder: Path, *faults: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a drill, of all faults where none are named; its temporary files go to `folder`.

    Sockets lie there too, so the folder's name must be short.
    """
    chosen = [word for fault in faults for word in ("--fault", fault)]
    command = [sys.executable, "-m", "ssop_cli.main", "drill", "--seed", "7", "--json"]
    done = subprocess.run(
        [*command, "--models-dir", str(models_cache()), *chosen],
        capture_output=True,
        check=False,
        timeout=_TIMEOUT_S,
        env={**os.environ, "TMPDIR": str(folder)},
        text=True,
    )
    report = json.loads(done.stdout) if done.stdout else {}
    assert "faults" in report, done.stdout + done.stderr
    return done.returncode, report


def broken(report: dict[str, Any]) -> list[str]:
    """What a drill complains about, by fault."""
    lines = [f"{row['name']}: {text}" for row in report["faults"] for text in (*row["wrong"], *row["failures"])]
    return [*lines, *report["wrong"]]
