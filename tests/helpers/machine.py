"""What the machine is doing meanwhile."""

import os


def stretched(seconds: float) -> float:
    """A bound on a time, longer by as much as the machine has more to do than it has cores."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
