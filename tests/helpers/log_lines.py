"""Logs of processes that still write them, and of some that were killed while they did."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records in a log of JSON lines. What is written just now, many lines at a time, may end within one."""
    return read_records(path.read_text(errors="replace"))


def read_records(text: str) -> list[dict[str, Any]]:
    """The records among lines. One that its process was killed in is none."""
    records: list[dict[str, Any]] = []
    whole, _, _ = text.rpartition("\n")
    # Texts in a record may have line separators of other kinds.
    for line in whole.split("\n"):
        if line.startswith("{"):
            with suppress(ValueError):
                records.append(json.loads(line))
    return records
