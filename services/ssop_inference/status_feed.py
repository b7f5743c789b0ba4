"""What a node says of itself, told to all who watch: made once for all of them, and not for each change of its load."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

PERIOD_S: Final = 1.0
"""It is said this often, whatever happens."""
LOAD_PAUSE_S: Final = 0.05
"""A change of the load is told this late at most; at full load slots change thousands of times a second."""


class StatusFeed:
    """Belongs to one event loop; has timers while somebody watches, and none else.

    `write` makes the message. `load` is what changes of which are told, where `change_load` says that there may be one:
    once for all that happened within LOAD_PAUSE_S, and not where it is again what was told last.
    """

    def __init__(self, write: Callable[[], bytes], load: Callable[[], Hashable]) -> None:
        self._write = write
        self._load = load
        self._changed = asyncio.Event()
        self._message = b""
        self._edition = 0
        self._told_load: Hashable = None
        self._told_s = 0.0
        self._load_timer: asyncio.TimerHandle | None = None
        self._period_timer: asyncio.TimerHandle | None = None
        self._watchers = 0

    def change(self) -> None:
        """Something has changed that must be known at once."""
        if self._watchers:
            self._tell()

    def change_load(self) -> None:
        """The load may have changed."""
        if self._watchers and self._load_timer is None:
            self._load_timer = asyncio.get_running_loop().call_later(LOAD_PAUSE_S, self._tell_load)

    def _tell_load(self) -> None:
        self._load_timer = None
        if self._load() != self._told_load:
            self._tell()

    def _tell(self) -> None:
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None
        self._message = self._make()
        self._edition += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _make(self) -> bytes:
        self._told_load = self._load()
        self._told_s = asyncio.get_running_loop().time()
        return self._write()

    def _keep_on(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._told_s + PERIOD_S - loop.time()
        self._period_timer = loop.call_later(left_s if left_s > 0 else PERIOD_S, self._keep_on)
        if left_s <= 0:
            self._tell()

    def watch(self) -> "StatusWatch":
        """One more who watches, until it is closed; its first message is of this moment, and its own."""
        if self._period_timer is None:
            message = self._make()
            self._period_timer = asyncio.get_running_loop().call_later(PERIOD_S, self._keep_on)
        else:
            message = self._write()
            if self._told_load != self._load():
                # The others were told another one: should that be the load again, this one has to hear of it.
                self._told_load = None
        self._watchers += 1
        return StatusWatch(self, message, self._edition)

    def leave(self) -> None:
        """One who watched is gone."""
        self._watchers -= 1
        if not self._watchers:
            for timer in (self._load_timer, self._period_timer):
                if timer is not None:
                    timer.cancel()
            self._load_timer = self._period_timer = None

    async def read_after(self, edition: int) -> tuple[bytes, int]:
        """The newest message once it is another than `edition`, and its own edition."""
        while self._edition == edition:
            await self._changed.wait()
        return self._message, self._edition


class StatusWatch:
    """One who watches. What it did not read before the next message came is not told any more."""

    def __init__(self, feed: StatusFeed, message: bytes, edition: int) -> None:
        self._feed = feed
        self._first: bytes | None = message
        self._edition = edition

    async def read(self) -> bytes:
        """The newest message, once there is one that it has not read."""
        if self._first is not None:
            message, self._first = self._first, None
            return message
        message, self._edition = await self._feed.read_after(self._edition)
        return message

    def close(self) -> None:
        """Watch no more."""
        self._feed.leave()
