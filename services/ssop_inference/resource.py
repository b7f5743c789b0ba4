"""Memory that is left for this node: of its cgroup (v2, then v1) where that has a limit, else of the host."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_V1_UNLIMITED_BYTES: Final = 1 << 60
# None of these files is larger.
_MOST_BYTES: Final = 65_536


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
    """Read the kernel's files now. Raises OSError where there is no /proc, or one that does not say what is free."""
    meminfo = _read(f"{proc}/meminfo")
    if meminfo is None:
        raise FileNotFoundError(f"{proc}/meminfo can't be read")
    if b"MemTotal:" not in meminfo or b"MemAvailable:" not in meminfo:
        # None free would be taken for a machine that is full.
        raise OSError(f"{proc}/meminfo has no MemTotal or no MemAvailable")
    total, free = _find(meminfo, b"MemTotal:") * 1024, _find(meminfo, b"MemAvailable:") * 1024
    oom_count = 0
    for folder in _own_cgroups(proc, cgroups):
        # Limits hold on every level up to the root; the tightest one counts.
        limit, used, reclaimable = _read_cgroup(folder)
        if limit is not None:
            total = min(total, limit)
            free = min(free, max(0, limit - used + reclaimable))
        # v2, then v1.
        for name in ("memory.events", "memory.oom_control"):
            oom_count = max(oom_count, _find(_read(f"{folder}/{name}"), b"oom_kill "))
    held = _find(_read(f"{proc}/self/status"), b"VmRSS:") * 1024
    return Memory(free, total, oom_count, held)


def _own_cgroups(proc: Path, cgroups: Path) -> list[str]:
    for line in (_read(f"{proc}/self/cgroup") or b"").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            base = f"{cgroups}/memory" if controllers else str(cgroups)
            parts = path.strip("/").split("/") if path.strip("/") else []
            levels = ["/".join([base, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
            return [level for level in levels if Path(level).is_dir()]
    return []


def _read_cgroup(folder: str) -> tuple[int | None, int, int]:
    """Limit (None: none), use, and the part of it that the kernel takes back when it needs it."""
    limit, used = _read_number(f"{folder}/memory.max"), _read_number(f"{folder}/memory.current")
    if limit is None and used is None:
        limit = _read_number(f"{folder}/memory.limit_in_bytes")
        used = _read_number(f"{folder}/memory.usage_in_bytes")
    if limit is None or limit >= _V1_UNLIMITED_BYTES:
        return None, 0, 0
    stat = _read(f"{folder}/memory.stat")
    return limit, used or 0, _find(stat, b"inactive_file ") or _find(stat, b"total_inactive_file ")


def _read_number(path: str) -> int | None:
    """The number in a file; None for `max` and where the file is missing."""
    text = (_read(path) or b"").strip()
    return int(text) if text.isdigit() else None


def _read(path: str) -> bytes | None:
    """A file of the kernel, which are read anew once a second; None where it is missing."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, _MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)


def _find(table: bytes | None, key: bytes) -> int:
    """The number behind a key that begins a line; 0 where there is none."""
    _, _, rest = (b"\n" + (table or b"")).partition(b"\n" + key)
    words = rest.split(None, 1)
    return int(words[0]) if words and words[0].isdigit() else 0
