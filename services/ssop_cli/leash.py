"""Run a command that dies with its parent: `python leash.py PARENT_PID COMMAND...`.

A program of its own, because code between fork and exec in a process with threads is unsafe. The command takes over
the process, so its id is the one that the parent knows.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL when the parent is gone, then become the command."""
    parent = int(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the request was made.
    if os.getppid() != parent:
        sys.exit("the supervisor is gone")
    try:
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"can't run {sys.argv[2]}: {error.strerror}")


if __name__ == "__main__":
    main()
