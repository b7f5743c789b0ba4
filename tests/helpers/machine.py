"""What the machine is doing meanwhile."""

import os
from pathlib import Path


def read_steal_s() -> float:
    """Seconds of all cores in which the hypervisor ran somebody else, since the machine booted."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def stretched(bound: float) -> float:
    """A bound on a time, in any unit, longer by as much as the machine has more to do than it has cores.

    What it has to do is the mean of the last minute, or what runs now where that is more: load that has just begun.
    """
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return bound * max(1.0, max(os.getloadavg()[0], running) / (os.cpu_count() or 1))
