"""What a supervisor says about itself, for other commands: `supervisor.json` in the state directory."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ssop_cli.places import write_private


@dataclass(frozen=True, slots=True)
class ChildReport:
    """A child, as others see it. `since_ms` is wall-clock milliseconds since the epoch; `pid` 0 is no process."""

    name: str
    state: str
    address: str
    pid: int = 0
    start_ticks: int = 0
    restarts: int = 0
    since_ms: int = 0
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A supervisor. `phase` is starting, ready, degraded (a child is down), stopping or failed."""

    pid: int
    phase: str
    target: str
    config: str
    started_ms: int
    notes: list[str] = field(default_factory=list)
    children: list[ChildReport] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def write_report(path: Path, report: Report) -> None:
    """Replace the file."""
    write_private(path, json.dumps(report.to_json(), ensure_ascii=False, indent=1) + "\n")


def read_report(path: Path) -> Report | None:
    """The last report; None if there is none, or it is none."""
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        children = [ChildReport(**child) for child in found["children"]]
        return Report(**{**found, "children": children})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: tells it from a later one with its id. 0 if it is gone.

    Field 22 of /proc/PID/stat (proc(5)); the name before it may hold spaces and brackets.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def is_alive(child: ChildReport) -> bool:
    """Whether the very process of the report still runs."""
    return child.pid > 0 and child.start_ticks > 0 and start_ticks(child.pid) == child.start_ticks


def is_process(pid: int) -> bool:
    """Whether a process with the id exists and is no zombie."""
    return pid > 0 and Path(f"/proc/{pid}").exists() and start_ticks(pid) > 0 and os.getpid() != pid
