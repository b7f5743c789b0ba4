"""Requests whose one message has not come whole."""

import asyncio
from collections.abc import Callable
from typing import Final

from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_transport.served import NativeCall, failed, finish, too_many, unreadable

GATHER_S: Final = 60.0
"""For the message of a request to come whole, whatever its deadline."""

Start = Callable[[NativeCall], None]


class Gatherings:
    """Those of a server, `most` at once. `start` is called with each that is whole."""

    __slots__ = ("_most", "_running", "start")

    def __init__(self, most: int, start: Start) -> None:
        self._most = most
        self._running: set[_Gathering] = set()
        self.start = start

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, call: NativeCall) -> None:
        """Start a call whose message is there, else wait for it; refuse it where it breaks a rule."""
        _Gathering(self, call).news()

    def enter(self, gathering: "_Gathering") -> bool:
        """Count one that waits; False where there are too many."""
        if len(self._running) >= self._most:
            return False
        self._running.add(gathering)
        return True

    def leave(self, gathering: "_Gathering") -> None:
        """It is over."""
        self._running.discard(gathering)


class _Gathering:
    """Waits until the one message of a request is whole."""

    def __init__(self, all_: Gatherings, call: NativeCall) -> None:
        self._all, self._call, self._stream = all_, call, call.stream
        self._timer: asyncio.TimerHandle | None = None

    def news(self) -> None:
        """Begin, wait on, or refuse."""
        stream = self._stream
        if stream.failure or (stream.is_ended and stream.is_truncated):
            self._refuse(unreadable(stream))
        elif stream.is_closed:
            self._stop_timer()
        elif stream.is_ended or stream.waiting_count > 1:
            self._end()
        elif self._timer is None:
            if not self._all.enter(self):
                self._refuse(too_many())
                return
            stream.listener = self.news
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(self._call.remaining_s(), GATHER_S), self._expire)

    def _end(self) -> None:
        if not self._stream.has_one_message:
            text = "the method takes one message"
            self._refuse(MeshError(ErrorReason.ERROR_REASON_REQUEST_INVALID, text))
            return
        self._stop_timer()
        self._all.start(self._call)

    def _expire(self) -> None:
        text = "the request did not arrive before its deadline"
        self._refuse(MeshError(ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED, text))

    def _refuse(self, error: MeshError) -> None:
        self._stop_timer()
        finish(self._stream, failed(error))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._all.leave(self)
