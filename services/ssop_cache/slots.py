# cython: annotation_typing=False
"""How many may do something at the same time; the others wait, and who came first goes first.

`slots.pxd` gives the types with which this very file is compiled.
"""

import asyncio
from collections import deque


class Slots:
    """So many slots of one event loop. Whoever has taken one, or has waited for one, gives it back."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a slot, if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Take the slot that somebody gives back, where `take` found none."""
        # What is given back while somebody waits is his, and never free in between.
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(future)
            else:
                # It was his before he heard of it.
                self.give()
            raise

    def give(self) -> None:
        """Give a slot back."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1

    def _forget(self, future: "asyncio.Future[None]") -> None:
        # Who gave a slot back meanwhile has passed over it.
        if future in self._waiting:
            self._waiting.remove(future)
