"""Which probes of which files are watched: of all that processes have loaded, and of files that they will load."""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ssop_ebpf.core.host import LIBRARIES, Library
from ssop_ebpf.kernel import Kernel, KernelError
from ssop_ebpf.processes import Processes

_MAX_LIBRARIES: Final = 64
"""Each takes entries of the object's table of probes."""
_log = logging.getLogger(__name__)


class Key(NamedTuple):
    """A file, whatever its name."""

    device: int
    inode: int


@dataclass(slots=True)
class _Attached:
    path: str
    module: str
    links: dict[str, int] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


class Probes:
    """Attaches and detaches. A file that nobody has loaded and no folder names any more is let go."""

    def __init__(self, kernel: Kernel, processes: Processes | None, proc: Path, folders: Iterable[Path]) -> None:
        """`processes` None: only what the folders hold is watched."""
        self._kernel = kernel
        self._processes = processes
        self._proc = proc
        self._folders = tuple(folders)
        self._attached: dict[Key, _Attached] = {}
        self._keys: dict[Library, Key] = {}
        self.failures: Counter[str] = Counter()

    def refresh(self) -> None:
        """Look who has loaded what, and what the folders hold now."""
        wanted: set[Key] = set()
        for folder in self._folders:
            for module in LIBRARIES:
                for path in sorted(folder.glob(f"{module}.*so")):
                    self._want(wanted, str(path), str(path), module)
        loaded: set[Library] = set()
        for process, library in self._processes.scan() if self._processes is not None else ():
            key = self._keys.get(library)
            held = self._attached.get(key) if key is not None else None
            if key is not None and held is not None and len(held.links) == len(LIBRARIES[library.module]):
                wanted.add(key)
            elif library not in loaded:
                key = self._want(wanted, self._open_path(process, library), library.path, library.module)
                if key is not None:
                    self._keys[library] = key
            loaded.add(library)
        for library in self._keys.keys() - loaded:
            del self._keys[library]
        for key in self._attached.keys() - wanted:
            self._release(self._attached.pop(key))

    def states(self) -> Iterator[tuple[str, str, bool]]:
        """Each probe, the path of its file, and whether it is watched there."""
        for held in self._attached.values():
            for probe in LIBRARIES[held.module]:
                yield probe, held.path, probe in held.links

    def close(self) -> None:
        """Detach from everything."""
        for held in self._attached.values():
            self._release(held)
        self._attached.clear()

    def _open_path(self, process: int, library: Library) -> str:
        """A path that leads to the file from here: the process may see another file system, and the file have no name.

        Links of map_files lead to files that were replaced, too.
        """
        try:
            for entry in (self._proc / str(process) / "map_files").iterdir():
                if entry.stat().st_ino == library.inode and library.path in str(entry.readlink()):
                    return str(entry)
        except OSError:
            pass
        return f"{self._proc}/{process}/root{library.path}"

    def _want(self, wanted: set[Key], path: str, shown: str, module: str) -> Key | None:
        """Watch the file that this path leads to, if it is there and there is room."""
        try:
            found = os.stat(path)  # noqa: PTH116 - links of map_files are no paths that pathlib may tidy
        except OSError:
            return None
        key = Key(found.st_dev, found.st_ino)
        held = self._attached.get(key)
        if held is None:
            if len(self._attached) >= _MAX_LIBRARIES:
                self.failures.update(LIBRARIES[module])
                return None
            held = self._attached[key] = _Attached(shown, module)
        wanted.add(key)
        self._attach(held, path)
        return key

    def _attach(self, held: _Attached, path: str) -> None:
        for probe in LIBRARIES[held.module]:
            if probe in held.links:
                continue
            where = {"probe": probe, "file": held.path}
            try:
                held.links[probe] = self._kernel.attach(probe, path)
            except KernelError as error:
                self.failures[probe] += 1
                if probe not in held.failed:
                    held.failed.add(probe)
                    _log.warning("a probe can't be watched", extra={**where, "cause": str(error)})
            else:
                _log.info("a probe is watched", extra=where)

    def _release(self, held: _Attached) -> None:
        for link in held.links.values():
            self._kernel.detach(link)
        _log.info("probes are no longer watched", extra={"file": held.path, "probes": sorted(held.links)})
