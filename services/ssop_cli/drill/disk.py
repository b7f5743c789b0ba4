"""A disk that can be full without harm to anybody else: a small tmpfs for root, else a limit on a process's files."""

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SIZE_BYTES: Final = 33_554_432
_BALLAST_BYTES: Final = 65_536
_MOUNT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder. `is_mounted`: it is a file system of its own."""

    folder: Path
    is_mounted: bool

    @property
    def means(self) -> str:
        """How it is filled, in words."""
        if self.is_mounted:
            return f"a tmpfs of {_SIZE_BYTES // 1_048_576} MiB is filled (ENOSPC)"
        return "RLIMIT_FSIZE of the process is 0 (EFBIG)"

    @contextlib.contextmanager
    def filled(self, pid: int) -> Iterator[None]:
        """No byte more can be written there by the process `pid`, until the block ends. Raises OSError."""
        with self._ballast() if self.is_mounted else _limited(pid):
            yield

    @contextlib.contextmanager
    def _ballast(self) -> Iterator[None]:
        path = self.folder / "ballast"
        try:
            with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
                while True:
                    # A short write comes just before ENOSPC.
                    file.write(b"\0" * _BALLAST_BYTES)
            yield
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _limited(pid: int) -> Iterator[None]:
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        # The process may be another by now, or none.
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def open_disk(folder: Path) -> Iterator[Disk]:
    """A disk at a folder that is made for it, until the block ends."""
    folder.mkdir()
    is_mounted = os.geteuid() == 0 and _run(
        "mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES},mode=700", "tmpfs", folder
    )
    try:
        yield Disk(folder, is_mounted)
    finally:
        if is_mounted:
            # Lazily: a process that is about to end may hold a file still.
            _run("umount", "-l", folder)


def _run(*command: "str | Path") -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - words of this module
            [str(word) for word in command], capture_output=True, check=False, timeout=_MOUNT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
