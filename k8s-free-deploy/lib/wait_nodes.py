"""Wait until routers hold every node fit: `wait_nodes.py TIMEOUT_S EXCEPT HOST:PORT...`, where their metrics are.

EXCEPT are nodes that need not be, joined by commas. Those that are not in time are printed in that form.

A node that was restarted is out of rotation until it has been heard of and tried; restarting the next one before that
would leave a tier without any.
"""

import re
import sys
import time
import urllib.request
from collections.abc import Collection, Sequence
from typing import Final

FRESH_S: Final = 3.0
"""Age of a status from which a node may be gone; one comes each second."""
_POLL_S: Final = 0.2
_AGE: Final = re.compile(r'^ssop_router_node_status_age_seconds\{address="([^"]*)".*\} (\S+)$', re.MULTILINE)
_EJECTED: Final = re.compile(r'^ssop_router_node_ejected\{address="([^"]*)".*\} (\S+)$', re.MULTILINE)


def unfit(metrics: str) -> set[str]:
    """Nodes that a router would not ask, by its metrics."""
    late = {node for node, age in _AGE.findall(metrics) if not 0 <= float(age) < FRESH_S}
    return late | {node for node, is_out in _EJECTED.findall(metrics) if float(is_out)}


def _read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=2) as answer:
        text: str = answer.read().decode()
        return text


def main(timeout_s: float, spared: Collection[str], addresses: Sequence[str]) -> int:
    """Return 0 when all hold all fit that are not spared, and 1 when they don't in time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        silent = []
        found: set[str] = set()
        for address in addresses:
            try:
                found |= unfit(_read(address)).difference(spared)
            except OSError as error:
                silent.append(f"the router with metrics at {address} does not answer: {error}")
        if not found and not silent:
            return 0
        if time.monotonic() > deadline_s:
            sys.stderr.write("".join(f"ssop: {line}\n" for line in silent))
            sys.stdout.write(",".join(sorted(found)) + "\n")
            return 1
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
