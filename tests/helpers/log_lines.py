"""Logs of processes that still write them."""

import json
from pathlib import Path
from typing import Any


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records in a log of JSON lines. What is written just now, many lines at a time, may end within one."""
    whole, _, _ = path.read_text(errors="replace").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
