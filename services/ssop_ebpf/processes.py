"""The processes of this host, as /proc shows them. Every one of them may be gone between two reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ssop_ebpf.core.host import CLIENT, Library, find_libraries, service_of, start_of, unit_of
from ssop_ebpf.core.ledger import Origin

_YOUNG_SCANS: Final = 5
_OLD_SCANS: Final = 30
"""Of a process without probes the first scans look, then each thirtieth: a module may be imported at any time."""


@dataclass(slots=True)
class _Process:
    start: int
    libraries: tuple[Library, ...] = ()
    scans: int = 0


class Processes:
    """Finds who is who. `proc` is where the file system of processes is mounted."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: dict[int, _Process] = {}
        self._origins: dict[int, tuple[int, Origin]] = {}

    def start(self, process: int) -> int | None:
        """What tells this process from another of its id; None where it has ended."""
        try:
            return start_of((self._proc / str(process) / "stat").read_text())
        except (OSError, IndexError, ValueError):
            return None

    def origin(self, process: int) -> tuple[Origin, bool]:
        """Who a process is, and whether it is still there. One that ended before it was seen was a client.

        0 stands for all processes that have no id where this one runs.
        """
        if process == 0:
            return Origin(CLIENT, ""), True
        start = self.start(process)
        known = self._origins.get(process)
        if start is None or (known is not None and known[0] != start):
            self._origins.pop(process, None)
            return (known[1] if known is not None else Origin(CLIENT, "")), False
        if known is None:
            folder = self._proc / str(process)
            try:
                service = service_of((folder / "cmdline").read_bytes())
                # Clients may be in units without number.
                origin = Origin(service, "" if service == CLIENT else unit_of((folder / "cgroup").read_text()))
            except OSError:
                return Origin(CLIENT, ""), False
            known = self._origins[process] = (start, origin)
        return known[1], True

    def scan(self) -> Iterator[tuple[int, Library]]:
        """Libraries with probes, by the processes that have loaded them."""
        present: set[int] = set()
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            process = int(folder.name)
            start = self.start(process)
            if start is None:
                continue
            present.add(process)
            known = self._known.get(process)
            if known is None or known.start != start:
                known = self._known[process] = _Process(start)
            if known.scans < _YOUNG_SCANS or known.scans % _OLD_SCANS == 0:
                known.libraries = self._libraries(folder)
            known.scans += 1
            for library in known.libraries:
                yield process, library
        for process in self._known.keys() - present:
            del self._known[process]

    @staticmethod
    def _libraries(folder: Path) -> tuple[Library, ...]:
        try:
            return tuple(find_libraries((folder / "maps").read_text()))
        except (OSError, ValueError):
            return ()
