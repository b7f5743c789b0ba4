"""What the disk takes to keep an append: what a store that syncs each of its writes can't be faster than."""

import os
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

_APPEND_BYTES: Final = 2_048


class SyncFloor(NamedTuple):
    """Percentiles of one append with its `fdatasync`, in milliseconds."""

    p50_ms: float
    p90_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.2f}, p90 {self.p90_ms:.2f}"


def measure_sync_floor(count: int = 300) -> SyncFloor:
    """Append about as much as an admission writes, `count` times, where temporary files lie."""
    with tempfile.TemporaryDirectory() as name:
        file = os.open(Path(name) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            took_ms = sorted(_append(file) for _ in range(count))
        finally:
            os.close(file)
    return SyncFloor(took_ms[count // 2], took_ms[count * 9 // 10])


def _append(file: int) -> float:
    began_s = time.perf_counter()
    os.write(file, bytes(_APPEND_BYTES))
    os.fdatasync(file)
    return 1_000 * (time.perf_counter() - began_s)
