"""Many services of a mesh at once, cheaply: forks of one process that has imported everything and begun nothing.

`python -m helpers.service_forks` reads an order a line from standard input (JSON of `Order`) and prints the process id
of each; they end with it.
"""

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from helpers.child_environ import child_environ

_PR_SET_PDEATHSIG: Final = 1
_CLONE_NEWNET: Final = 0x40000000
_SERVICES: Final = ("cache", "gateway", "inference", "rag", "router")


@dataclass(frozen=True, slots=True)
class Order:
    """A service to start: its settings file, the network namespace that it is in, and variables of its own."""

    service: str
    config: str
    log: str
    namespace: str
    environ: dict[str, str] = field(default_factory=dict)


def _become(order: Order, services: Mapping[str, Callable[[], object]]) -> NoReturn:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with Path("/run/netns", order.namespace).open("rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    with Path(order.log).open("ab") as log:
        os.dup2(log.fileno(), 2)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.environ.update(order.environ)
    sys.argv = [order.service, "--config", order.config]
    services[order.service]()
    raise SystemExit(0)


def main() -> None:
    """Fork what is ordered, and reap what ends."""
    services = {name: importlib.import_module(f"ssop_{name}.main").run for name in _SERVICES}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(order, services)
        print(pid, flush=True)


class Forks:
    """Starts services, and ends them as a host that dies does."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, order: Order) -> int:
        """The process id of a service that begins."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "nothing forks services any more"
        return int(answer)


@contextmanager
def service_forks(log: Path) -> Iterator[Forks]:
    """Something that starts services, until the block ends; all of them end with it."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "helpers.service_forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environ(),
            text=True,
        )
    try:
        yield Forks(process)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
