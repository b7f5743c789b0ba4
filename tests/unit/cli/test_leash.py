"""A child that dies with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import ssop_cli.leash
from helpers.eventually import eventually
from ssop_cli.report import start_ticks

LEASH = ssop_cli.leash.__file__
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, sys.argv[1], str(os.getpid()), "/bin/sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


async def test_a_killed_parent_takes_its_child_along() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, LEASH], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())

    def has_become_the_command() -> bool:
        return b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]

    try:
        await eventually(has_become_the_command)
        parent.kill()
        parent.wait()
        await eventually(lambda: start_ticks(child) == 0)
    finally:
        parent.stdout.close()
        if start_ticks(child):
            os.kill(child, signal.SIGKILL)


def test_a_child_whose_parent_is_gone_already_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, LEASH, "1", "/bin/echo", "started"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "started" not in done.stdout
