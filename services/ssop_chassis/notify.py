"""What a process tells the service manager that started it: sd_notify(3), by the standard library alone.

Started by anybody else, it says nothing. The watchdog is fed by the event loop, so a loop that hangs is noticed.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

FIRST_LISTEN_FD: Final = 3
"""SD_LISTEN_FDS_START of sd_listen_fds(3)."""
_FEEDS: Final = 3
"""Times that the watchdog is fed in the time that it bears."""
_log = logging.getLogger(__name__)


class Manager:
    """The service manager's end. `environ` names its socket in NOTIFY_SOCKET; without it nothing is told."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A name in the abstract namespace is written with an @ for its first byte, which is 0.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environ) if address else 0.0

    def ready(self, status: str) -> None:
        """The process serves: whoever waits for its start need wait no longer."""
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """The process drains."""
        self._tell(f"STOPPING=1\nSTATUS={status}")

    def say(self, status: str) -> None:
        """What the process does, in one line, for people."""
        self._tell(f"STATUS={status}")

    def feed(self) -> None:
        """Feed the watchdog."""
        self._tell("WATCHDOG=1")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Feed the watchdog, where there is one, for as long as the block runs and the event loop turns."""
        if not self.watchdog_s:
            yield
            return
        feeding = asyncio.create_task(self._feed())
        try:
            yield
        finally:
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding

    async def _feed(self) -> None:
        while True:
            self.feed()
            await asyncio.sleep(self.watchdog_s / _FEEDS)

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                # The manager may be busy for a moment; the loop must not be for longer.
                end.setblocking(False)
                end.sendto(text.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager can't be told: %s", error.strerror)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds that the watchdog bears, for this process; 0: there is none."""
    period_us, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not period_us.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(period_us) / 1_000_000


def take_listeners(environ: Mapping[str, str] = os.environ) -> list[socket.socket]:
    """The listening sockets that the manager holds for this process (sd_listen_fds(3)); none without it.

    They stay open at the manager when the process ends, so that clients of a restart wait instead of being refused.
    """
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID", "") != str(os.getpid()) or not count.isdecimal():
        return []
    listeners = []
    for number in range(FIRST_LISTEN_FD, FIRST_LISTEN_FD + int(count)):
        os.set_inheritable(number, False)
        listeners.append(socket.socket(fileno=number))
    return listeners
