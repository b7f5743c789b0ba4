"""Counts of instructions: what is a request's own, and when nothing can be counted."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.instructions import Cost, Count, Counter, missing_counter


def _count(instructions: int, seconds: float) -> Count:
    count = Count()
    count.instructions, count.seconds = instructions, seconds
    return count


def test_cost_is_of_each_request_and_of_each_idle_second() -> None:
    busy, idle = _count(1_500_000, 10.0), _count(250_000, 5.0)
    assert Cost.of(busy, 100, idle) == Cost(request=15.0, idle_second=50.0, seconds=10.0)


def test_machine_without_valgrind_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert missing_counter() == "instructions are not counted: no valgrind and no vgdb on the PATH"


def test_interpreter_runs_other_modules_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Counter(tmp_path).interpreter("counted.main")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    command = [str(python), "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (sys.executable, 0)
