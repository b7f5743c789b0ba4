"""Memory that is left for this node: of its cgroup (v2, then v1) where that has a limit, else of the host."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_V1_UNLIMITED_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are free and that there are in all; `oom_count` is how often the cgroup was killed for memory.

    `process_bytes` is what this process holds.
    """

    free_bytes: int
    total_bytes: int
    oom_count: int
    process_bytes: int = 0


def read_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Memory:
    """Read the kernel's files now. Raises OSError where there is no /proc."""
    fields = _read_table(proc / "meminfo", ":")
    total, free = fields["MemTotal"] * 1024, fields["MemAvailable"] * 1024
    oom_count = 0
    for folder in _own_cgroups(proc, cgroups):
        # Limits hold on every level up to the root; the tightest one counts.
        limit, used, reclaimable = _read_cgroup(folder)
        if limit is not None and limit < total:
            total = limit
        if limit is not None:
            free = min(free, max(0, limit - used + reclaimable))
        # v2, then v1.
        for name in ("memory.events", "memory.oom_control"):
            oom_count = max(oom_count, _read_table(folder / name, " ").get("oom_kill", 0))
    held = _read_table(proc / "self/status", ":").get("VmRSS", 0) * 1024
    return Memory(free, total, oom_count, held)


def _own_cgroups(proc: Path, cgroups: Path) -> list[Path]:
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = cgroups if not controllers else cgroups / "memory"
        if not controllers or "memory" in controllers.split(","):
            own = base / path.strip("/")
            levels = [own, *own.parents]
            return [level for level in levels if level.is_relative_to(base) and level.is_dir()]
    return []


def _read_cgroup(folder: Path) -> tuple[int | None, int, int]:
    """Limit (None: none), use, and the part of it that the kernel takes back when it needs it."""
    limit = _read_number(folder / "memory.max")
    used = _read_number(folder / "memory.current")
    if limit is None and used is None:
        limit = _read_number(folder / "memory.limit_in_bytes")
        used = _read_number(folder / "memory.usage_in_bytes")
    if limit is not None and limit >= _V1_UNLIMITED_BYTES:
        limit = None
    stat = _read_table(folder / "memory.stat", " ")
    return limit, used or 0, stat.get("inactive_file", stat.get("total_inactive_file", 0))


def _read_number(path: Path) -> int | None:
    """The number in a file; None for `max` and where the file is missing."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _read_table(path: Path, separator: str) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    table = {}
    for line in lines:
        key, _, value = line.partition(separator)
        number = value.split()[0] if value.split() else ""
        if number.isdigit():
            table[key] = int(number)
    return table
