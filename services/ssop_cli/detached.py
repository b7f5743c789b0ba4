"""A mesh in the background: `ssop up --detach`, and `ssop down`."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console

from ssop_cli.board import show_bytes
from ssop_cli.failure import EXIT_FAILED, CommandError
from ssop_cli.lock import lock_holder, runs_already
from ssop_cli.logfile import read_tail
from ssop_cli.places import Places, make_places
from ssop_cli.report import Report, read_report

DETACH_TIMEOUT_S: Final = 1_800.0
DOWN_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 12
_FAULT_MARK: Final = "ssop: "
"""How the line of an error begins."""


def run_detached(places: Places, arguments: list[str], console: Console) -> Report:
    """Start `ssop up ARGUMENTS` in the background and wait until the mesh is ready. Raises CommandError."""
    make_places(places)
    holder = lock_holder(places.lock)
    if holder is not None:
        raise runs_already(holder)
    output = places.log("up")
    with output.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, "-m", "ssop_cli.main", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "NO_COLOR": "1"},
        )
    try:
        return _wait_until_ready(process, places, console)
    except BaseException:
        if process.poll() is None:
            process.terminate()
        raise


def _wait_until_ready(process: "subprocess.Popen[bytes]", places: Places, console: Console) -> Report:
    is_failing = False
    deadline_s = time.monotonic() + DETACH_TIMEOUT_S
    with places.log("up").open(encoding="utf-8", errors="replace") as output:
        while time.monotonic() < deadline_s:
            code = process.poll()
            for line in output:
                # The error says the last lines itself.
                if code is None and not line.startswith(_FAULT_MARK) and not is_failing:
                    console.print(line.rstrip("\n"), highlight=False, markup=False, soft_wrap=True)
                else:
                    is_failing = True
            if code is not None:
                tail = "\n  ".join(read_tail(places.log("up"), _LOG_LINES)) or _room_left(places)
                raise CommandError(f"the mesh did not start:\n  {tail}", exit_code=code or EXIT_FAILED)
            report = read_report(places.report)
            if report is not None and report.pid == process.pid and report.phase == "ready":
                for line in output:
                    console.print(line.rstrip("\n"), highlight=False, markup=False, soft_wrap=True)
                return report
            time.sleep(_POLL_S)
    raise CommandError(f"the mesh was not ready within {DETACH_TIMEOUT_S:.0f} s")


def _room_left(places: Places) -> str:
    """What to say of a start that left no word: its log may have had no room."""
    free = show_bytes(shutil.disk_usage(places.logs).free)
    return f"it said nothing; {free} are free at {places.logs}, where its log goes"


def run_down(places: Places, tell: Callable[[str], None]) -> bool:
    """Stop the mesh and wait for its end; False if none runs. Raises CommandError if it does not stop."""
    pid = lock_holder(places.lock)
    if pid is None:
        return False
    tell(f"stopping the mesh (pid {pid}); calls that run may finish")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + DOWN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if lock_holder(places.lock) != pid:
            return True
        time.sleep(_POLL_S)
    raise CommandError(
        f"the mesh (pid {pid}) has not stopped within {DOWN_TIMEOUT_S:.0f} s",
        advice=f"see {places.log('supervisor')}",
    )
