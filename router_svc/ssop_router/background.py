"""Tasks that outlive the call that started them: few, each with its own deadline, and all known."""

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
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and _log.isEnabledFor(logging.DEBUG):
            _log.debug("background work failed", extra={"cause": describe(error)})

    async def finish(self, timeout_s: float) -> None:
        """Wait for what runs, then cancel the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
