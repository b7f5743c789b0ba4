"""Waiting for something that is away: all who want it wait, and one of them looks whether it is back."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

_FIRST_S: Final = 0.1


def pause_s(failures: int, at_least_s: float, max_wait_s: float, rng: random.Random) -> float:
    """How long to leave alone what failed so often before: from 0.1 s, doubling up to `max_wait_s`, with jitter."""
    base_s = _FIRST_S * 2.0 ** min(failures, 32)
    return min(max_wait_s, max(base_s, at_least_s)) * (0.75 + 0.5 * rng.random())


class Patience:
    """Leaves one dependency alone while it fails, for `pause_s` each time.

    `on_change` is told when it goes away (True) and comes back (False).
    """

    def __init__(
        self, max_wait_s: float, rng: random.Random, on_change: Callable[[bool], None] = lambda _: None
    ) -> None:
        self._max_wait_s = max_wait_s
        self._rng = rng
        self._on_change = on_change
        self._failures = 0
        self._until_s = 0.0
        self._looking = asyncio.Lock()

    @property
    def is_away(self) -> bool:
        """The last try failed."""
        return self._failures > 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Enter at once while it is there. While it is away: wait, and enter alone."""
        if self._failures:
            async with self._looking:
                if self._failures:
                    await asyncio.sleep(max(0.0, self._until_s - asyncio.get_running_loop().time()))
                    yield
                    return
        yield

    def failed(self, at_least_s: float = 0.0) -> None:
        """It did not answer, and asked to be left alone for so long."""
        now_s = asyncio.get_running_loop().time()
        if self._failures and now_s < self._until_s:
            # Of many that were under way when it went: they are one failure.
            return
        self._until_s = now_s + pause_s(self._failures, at_least_s, self._max_wait_s, self._rng)
        self._failures += 1
        if self._failures == 1:
            self._on_change(True)

    def worked(self) -> None:
        """It answered."""
        if self._failures:
            self._failures = 0
            self._on_change(False)
