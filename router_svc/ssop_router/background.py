# cython: annotation_typing=False
"""Tasks that outlive the call that started them: few, each with its own deadline, and all known.

`background.pxd` gives the types with which this very file is compiled.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ssop_chassis.deadline import running_loop
from ssop_chassis.logs import describe

_log = logging.getLogger(__name__)


class Background:
    """Keeps references to tasks until they end, and logs those that fail."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run the work. Whoever awaits the task sees its error too."""
        task = running_loop().create_task(work)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Know of a task that runs already, and that nobody else waits for any more."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and _log.isEnabledFor(logging.DEBUG):
            _log.debug("background work failed", extra={"cause": describe(error)})

    async def finish(self, timeout_s: float) -> None:
        """Wait for what runs and for what follows from it, then cancel the rest.

        What follows from that, as the settlement of a generation that was cut, is given as long again.
        """
        if await self._cut(timeout_s):
            await self._cut(timeout_s)

    async def _cut(self, timeout_s: float) -> bool:
        """Wait, then cancel; whether something had to be cancelled."""
        loop = running_loop()
        until_s = loop.time() + timeout_s
        # What has been asked for in this turn of the loop may be begun in the next.
        await asyncio.sleep(0)
        while self._tasks and (left_s := until_s - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)
        late = set(self._tasks)
        if late:
            # One that is cancelled before its first step runs nothing, and tells nobody that it is over.
            await asyncio.sleep(0)
            for task in late:
                task.cancel()
            await asyncio.wait(late)
        return bool(late)
