"""The open sessions, in one place: a task or a timer for each of them would cost more than the rest of an idle one."""

import asyncio
from typing import Final, Protocol

_LOOKS: Final = 10
"""So often an idle time is looked at; a session ends at most that part of it late."""
_LEAST_PERIOD_S: Final = 0.005


class Member(Protocol):
    """A session."""

    def look(self, now_s: float) -> None:
        """End if nothing came for too long. `now_s` is on the loop's clock."""
        ...

    def interrupt(self) -> None:
        """Wait for no more messages."""
        ...


class Sessions:
    """Belongs to one event loop. `idle_s` is the time without a message after which a session ends."""

    def __init__(self, idle_s: float) -> None:
        self._period_s = max(idle_s / _LOOKS, _LEAST_PERIOD_S)
        self._members: set[Member] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Member) -> None:
        """Look at it from now on."""
        self._members.add(member)
        if self._timer is None:
            self._set_timer()

    def discard(self, member: Member) -> None:
        """Look at it no more."""
        self._members.discard(member)
        if not self._members and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drain(self) -> None:
        """Have all end once what runs on them has finished. Idempotent."""
        self.is_draining = True
        for member in list(self._members):
            member.interrupt()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._look)

    def _look(self) -> None:
        self._set_timer()
        now_s = asyncio.get_running_loop().time()
        for member in list(self._members):
            member.look(now_s)
