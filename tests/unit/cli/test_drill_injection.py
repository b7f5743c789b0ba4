"""Signals and commands reach the very child that the supervisor reports."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssop_cli.drill import injection
from ssop_cli.drill.faults import Act, Fault
from ssop_cli.failure import CommandError
from ssop_cli.places import Places
from ssop_cli.report import ChildReport, Report, start_ticks, write_report


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that can be harmed."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def report_child(folder: Path, *, pid: int, ticks: int, state: str = "ready") -> Places:
    """A state directory whose supervisor reports one child, `cache`."""
    places = Places(folder, folder)
    child = ChildReport("cache", state, "unix:/nowhere", pid=pid, start_ticks=ticks)
    write_report(places.report, Report(1, "ready", "127.0.0.1:1", "", 0, children=[child]))
    return places


def test_a_killed_child_dies_and_is_back_with_another_process(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    places = report_child(tmp_path, pid=sleeper.pid, ticks=start_ticks(sleeper.pid))
    is_back = injection.inject(Fault("f", "cache", Act.KILL, 1.0), places)
    assert sleeper.wait(10) == -9
    before = is_back()
    report_child(tmp_path, pid=sleeper.pid + 1, ticks=1)
    assert (before, is_back()) == (False, True)


def test_a_frozen_child_is_stopped_and_then_thawed(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    places = report_child(tmp_path, pid=sleeper.pid, ticks=start_ticks(sleeper.pid))
    was_stopped = []

    def sleep(_: float) -> None:
        was_stopped.append(injection.wait_until(lambda: state_of(sleeper.pid) == "T", 60.0))

    injection.inject(Fault("f", "cache", Act.FREEZE, 1.0), places, sleep=sleep)
    assert was_stopped == [True]
    assert injection.wait_until(lambda: state_of(sleeper.pid) != "T", 60.0)


def state_of(pid: int) -> str:
    """The state of a process in /proc, such as S or T."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_another_process_with_the_reported_id_is_left_alone(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    places = report_child(tmp_path, pid=sleeper.pid, ticks=1)
    with pytest.raises(CommandError):
        injection.inject(Fault("f", "cache", Act.KILL, 1.0), places)
    assert sleeper.poll() is None


def test_a_child_that_the_mesh_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no child 'rag'"):
        injection.inject(Fault("f", "rag", Act.KILL, 1.0), report_child(tmp_path, pid=0, ticks=0))


def test_a_redis_that_does_not_answer_is_said(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    places = report_child(tmp_path, pid=sleeper.pid, ticks=start_ticks(sleeper.pid))
    with pytest.raises(CommandError, match="FLUSHALL"):
        injection.inject(Fault("f", "cache", Act.COMMAND, 1.0, ("FLUSHALL",)), places)
