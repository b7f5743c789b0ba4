"""One supervisor for each state directory: a lock that the kernel lets go of when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ssop_cli.failure import EXIT_RUNS_ALREADY, CommandError


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock and write this process's id into it. Raises CommandError (exit code 3) if another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise runs_already(_read_pid(path)) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def runs_already(pid: int | None) -> CommandError:
    """The error of who would start a second mesh on a state directory."""
    return CommandError(
        f"a mesh runs already on this state directory (pid {pid or 'unknown'})",
        advice="'ssop status' shows it, 'ssop down' stops it, '--state-dir' names another place",
        exit_code=EXIT_RUNS_ALREADY,
        reason="RUNS_ALREADY",
    )


def lock_holder(path: Path) -> int | None:
    """Id of the process that holds the lock; None if nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(path)
    else:
        return None
    finally:
        os.close(descriptor)


def _read_pid(path: Path) -> int | None:
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None
