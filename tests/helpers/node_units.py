"""Node processes with somebody who starts them again, as a supervisor does, and who harms them."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from helpers.child_environ import child_environ
from helpers.node_process import NodeOrder

RESTART_S: Final = 0.5
FLAP_UP_S: Final = 4.0
FLAP_DOWN_S: Final = 2.0
_MEMORY_BYTES: Final = 134_217_728


class NodeUnit:
    """One node: its process, started again whenever it ends."""

    def __init__(self, order: NodeOrder, log: Path) -> None:
        self.order = order
        self.starts = 0
        self.kills = 0
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._is_frozen = False

    @property
    def calls(self) -> int:
        """Generations that it was asked for, over all its processes."""
        path = Path(self.order.calls)
        return path.stat().st_size if path.exists() else 0

    async def run(self) -> None:
        """Keep it running; until cancelled."""
        try:
            while True:
                await self._may_run.wait()
                code = await self._run_once()
                if code == -signal.SIGKILL:
                    self.kills += 1
                if self.order.behaviour == "grows" and not self.order.cgroup:
                    # What a cgroup would count.
                    self.order = replace(self.order, ooms=self.kills)
                await asyncio.sleep(RESTART_S)
        finally:
            self._end()

    async def _run_once(self) -> int:
        Path(self.order.address.removeprefix("unix:")).unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "helpers.node_process", self.order.to_json()],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=child_environ(),
            )
        self.starts += 1
        process = self._process
        while (code := process.poll()) is None:
            await asyncio.sleep(0.05)
        return code

    async def flap(self) -> None:
        """Kill it and hold it down, by turns; until cancelled."""
        while True:
            await asyncio.sleep(FLAP_UP_S)
            self._may_run.clear()
            if self._process is not None:
                self._process.kill()
            await asyncio.sleep(FLAP_DOWN_S)
            self._may_run.set()

    def freeze(self) -> None:
        """SIGSTOP, for good."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _end(self) -> None:
        if self._process is not None:
            # A stopped process takes this too.
            self._process.kill()
            self._process.wait()


@asynccontextmanager
async def run_units(orders: Sequence[NodeOrder], folder: Path) -> AsyncIterator[dict[str, NodeUnit]]:
    """Nodes by name, each with its process, until the block ends."""
    units = {order.name: NodeUnit(order, folder / f"{order.name}.log") for order in orders}
    tasks = [asyncio.ensure_future(unit.run()) for unit in units.values()]
    try:
        yield units
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def memory_cgroup(name: str) -> Iterator[str]:
    """A cgroup whose processes may hold 128 MiB; empty where this user may not make one."""
    folder = _memory_folder() / name
    limit = "memory.max" if (folder.parent / "cgroup.controllers").exists() else "memory.limit_in_bytes"
    try:
        folder.mkdir()
    except OSError:
        yield ""
        return
    try:
        try:
            (folder / limit).write_text(str(_MEMORY_BYTES))
        except OSError:
            yield ""
        else:
            yield str(folder)
    finally:
        _remove(folder)


def _memory_folder() -> Path:
    """The memory cgroup of this process."""
    root = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return root / "memory" / path.strip("/")
    return root / Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().strip("/")


def _remove(folder: Path) -> None:
    # Its processes are gone already, but the kernel may take a moment to see that.
    with contextlib.suppress(OSError):
        folder.rmdir()
