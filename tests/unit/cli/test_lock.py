"""One supervisor for each state directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ssop_cli.failure import EXIT_RUNS_ALREADY, CommandError
from ssop_cli.lock import hold_lock, lock_holder

HOLD = """
import sys
from pathlib import Path
from ssop_cli.lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_who_holds(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path), pytest.raises(CommandError, match=f"pid {os.getpid()}") as failure, hold_lock(path):
        pass
    assert failure.value.exit_code == EXIT_RUNS_ALREADY


def test_the_holder_is_known_while_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with hold_lock(path):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_nobody_holds_the_lock_of_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    assert lock_holder(tmp_path / "state" / "lock") is None


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert lock_holder(path) == process.pid
        process.kill()
        process.wait()
    assert lock_holder(path) is None
    with hold_lock(path):
        pass
