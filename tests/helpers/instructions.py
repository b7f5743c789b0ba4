"""Instructions that a process carries out, counted by valgrind's callgrind.

They compare two trees on a machine that others use, where CPU time swings by half. They know nothing of caches and
waiting. What is counted runs some fifty times slower, so that what it does by the clock, asked or not, weighs more than
in life: it is counted apart, and not taken off, since a busy process does less of it. Of one tree, counts that took the
same time are the same to a hundredth; one that took three times as long, on a full machine, is a tenth higher.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROGRAMS: Final = ("valgrind", "vgdb")
_CONTROL_TIMEOUT_S: Final = 120.0
_IDLE_S: Final = 5.0
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def missing_counter() -> str:
    """Why nothing can be counted here; empty where it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"instructions are not counted: no {' and no '.join(missing)} on the PATH" if missing else ""


class Count:
    """Instructions of a block and the seconds that it took, there when it has ended."""

    instructions = 0
    seconds = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Thousands of instructions of a request, and of a second in which nobody asks anything; and how long it took to
    count those of the requests."""

    request: float
    idle_second: float
    seconds: float

    @classmethod
    def of(cls, busy: Count, requests: int, idle: Count) -> "Cost":
        """From a block of so many requests, and one without any."""
        kilo = busy.instructions / requests / 1000, idle.instructions / idle.seconds / 1000
        return cls(*(round(value, 1) for value in (*kilo, busy.seconds)))

    def __str__(self) -> str:
        each = f"{self.request:,.0f} kinstr for each request (in {self.seconds:.0f} s)"
        return f"{each}, {self.idle_second:,.0f} in an idle second"


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts processes that were started with its command; their files are in `folder`, one counter's alone."""

    folder: Path

    def command(self, *command: str) -> list[str]:
        """A command such that the process can be counted; nothing is until `counting` says so."""
        out, pipes = self.folder / "callgrind.%p", self.folder / "vgdb"
        options = ["-q", f"--vgdb-prefix={pipes}", "--tool=callgrind", "--instr-atstart=no"]
        # Hashes of text are the same in each run, and with them the order and the collisions of sets.
        return ["env", "PYTHONHASHSEED=0", "valgrind", *options, f"--callgrind-out-file={out}", *command]

    def interpreter(self, module: str) -> Path:
        """A Python interpreter that counts itself where it runs `-m MODULE`, and is this one elsewhere."""
        python, program = shlex.quote(sys.executable), self.folder / "python"
        counted = shlex.join(self.command(sys.executable))
        text = f'#!/bin/sh\n[ "$1 $2" = "-m {module}" ] && exec {counted} "$@"\nexec {python} "$@"\n'
        program.write_text(text)
        program.chmod(0o700)
        return program

    @contextmanager
    def counting(self, pid: int) -> Iterator[Count]:
        """Count what process `pid` does until the block ends. Raises subprocess.SubprocessError."""
        count = Count()
        self._tell(pid, "zero")
        self._tell(pid, "instrumentation", "on")
        begun_s = time.monotonic()
        yield count
        count.seconds = time.monotonic() - begun_s
        self._tell(pid, "instrumentation", "off")
        before = set(self.folder.glob(f"callgrind.{pid}*"))
        self._tell(pid, "dump")
        written = set(self.folder.glob(f"callgrind.{pid}*")) - before
        count.instructions = max(int(found[1]) for path in written for found in _TOTAL.finditer(path.read_text()))

    def count_idle(self, pid: int) -> Count:
        """Some seconds of a process of which nobody wants anything."""
        with self.counting(pid) as count:
            time.sleep(_IDLE_S)
        return count

    def _tell(self, pid: int, *words: str) -> None:
        command = ["vgdb", f"--vgdb-prefix={self.folder / 'vgdb'}", f"--pid={pid}", *words]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_CONTROL_TIMEOUT_S)
