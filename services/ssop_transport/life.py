"""How long a server keeps a connection (gRPC's proposal A9), so that clients find servers that came later.

The end is that of every drain: the client is told first, and what it has on its way is still taken.
"""

import asyncio
import random
import resource
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ssop_transport._connection import Connection

# What a client sent before it heard of the end is on its way for this long at most.
NOTICE_S: Final = 1.0
# Of one that does not hang up, and of one that is gone without a word.
_PARTING_S: Final = 10.0
_JITTER: Final = 0.1
# Connections that are asked to go while others come, beside those that a process may hold.
_MOST_PARTING: Final = 64


def most_connections() -> int:
    """How many a server may hold: three quarters of the files that its process may open; it calls others too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files * 3 // 4


def make_place(connections: Collection[Connection], most: int) -> bool:
    """Whether one more may come. Above `most` the one without calls that has been silent longest has to go for it."""
    if len(connections) < most:
        return True
    idle = [connection for connection in connections if not connection.stream_count and not connection.is_draining]
    if not idle or len(connections) >= most + _MOST_PARTING:
        return False
    min(idle, key=lambda connection: connection.heard_s).close()
    return True


@dataclass(frozen=True, slots=True)
class Lives:
    """Seconds, 0: no end. `age_s` is spread by a tenth; `grace_s`: what calls get after it; `idle_s`: without calls."""

    age_s: float
    grace_s: float
    idle_s: float


class Life:
    """One connection's; it begins when it is made."""

    __slots__ = ("_age", "_begun_count", "_connection", "_idle", "_lives", "_loop")

    def __init__(self, connection: Connection, lives: Lives) -> None:
        self._connection = connection
        self._lives = lives
        self._loop = asyncio.get_running_loop()
        self._begun_count = 0
        self._age: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        if lives.age_s:
            age_s = lives.age_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads, hides nothing
            self._age = self._loop.call_later(age_s, self._announce)
        if lives.idle_s:
            self._idle = self._loop.call_later(lives.idle_s, self._look)

    def _look(self) -> None:
        """End a connection on which no call ran or began since the last look."""
        connection = self._connection
        is_idle = not connection.stream_count and connection.begun_count == self._begun_count
        self._begun_count = connection.begun_count
        if is_idle:
            self._announce()
        else:
            self._idle = self._loop.call_later(self._lives.idle_s, self._look)

    def _announce(self) -> None:
        self.end()
        self._connection.announce_drain()
        self._age = self._loop.call_later(NOTICE_S, self._drain)

    def _drain(self) -> None:
        self._connection.drain()
        grace_s = self._lives.grace_s
        if grace_s or not self._connection.stream_count:
            self._age = self._loop.call_later(grace_s or _PARTING_S, self._part)

    def _part(self) -> None:
        self._connection.close()
        self._age = self._loop.call_later(_PARTING_S, self._connection.abort)

    def end(self) -> None:
        """Forget it: the connection is lost, or ends by other means."""
        for timer in (self._age, self._idle):
            if timer is not None:
                timer.cancel()
