"""The routers that a client may ask: one channel to each, and which of them is asked now."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ssop_sdk.target import Target

C = TypeVar("C")


class Channels(Generic[C]):
    """Channels to targets of one mesh, opened when they are first needed. May be used from several threads.

    All calls go to one router. When a call there has failed in a way that another try may mend, the next one is asked,
    by that call and by those that come after it.
    """

    def __init__(self, targets: Sequence[Target], open_channel: Callable[[Target], C]) -> None:
        self._targets = targets
        self._open_channel = open_channel
        self._opened: dict[int, C] = {}
        self._now = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def get(self) -> tuple[int, C]:
        """The channel to ask, and the number of its router, from 0. Raises RuntimeError once they were taken."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            if self._now not in self._opened:
                self._opened[self._now] = self._open_channel(self._targets[self._now])
            return self._now, self._opened[self._now]

    def leave(self, number: int) -> None:
        """A call of the router with this number failed; another one is asked next, unless that is so already."""
        with self._lock:
            if self._now == number:
                self._now = (number + 1) % len(self._targets)

    def take_opened(self) -> list[C]:
        """The channels that were opened, to be closed by the caller; there are no others from then on."""
        with self._lock:
            self._is_closed = True
            opened = list(self._opened.values())
            self._opened.clear()
            return opened


class Attempts(Generic[C]):
    """The tries of one call: each further one at another router, where there is one."""

    def __init__(self, channels: Channels[C]) -> None:
        self._channels = channels
        self._number: int | None = None

    def next(self) -> C:
        """The channel for the next try."""
        if self._number is not None:
            self._channels.leave(self._number)
        self._number, channel = self._channels.get()
        return channel
