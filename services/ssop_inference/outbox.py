# cython: annotation_typing=False
"""What of one answer has not left yet: messages as large as they may be, and no more of them than its reader wants."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from ssop_chassis.call import Call
from ssop_codec import survey
from ssop_codec.probes import chunk_sent
from ssop_inference.core.buffer import SplitCounter, join_chunks, size_of


class Outbox:
    """Belongs to the task of one answer, which closes it.

    What is ready at the same time leaves in one message, as far as a chunk may hold it: each message wakes whoever
    passes it on. With a `linger_s` (seconds) what becomes ready within that time after a message waits for its end, but
    for a full chunk and the end of the answer; as with `linger.ms` of Kafka's producer, and unlike Nagle's algorithm
    (RFC 896), which the reader's acknowledgement ends.
    """

    def __init__(
        self, call: Call, loop: asyncio.AbstractEventLoop, stream: int, most_bytes: int, linger_s: float = 0.0
    ) -> None:
        """`stream` is the number that tracers know the answer by."""
        self._call = call
        self._loop = loop
        self._stream = stream
        self._most_bytes = most_bytes
        self._linger_s = linger_s
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Future[None] | None = None
        self.ready: list[bytes] = []
        self.splits: Final = SplitCounter()
        self.frames = 0
        """Document frames that have left."""

    def offer(self) -> Awaitable[None] | None:
        """Send what is ready, or see to it that it leaves in time. What is returned is awaited before more is added."""
        if self._linger_s and size_of(self.ready) < self._most_bytes:
            left_s = self._next_s - self._loop.time()
            if left_s > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(left_s, self._ring)
                return None
        return self.send()

    def send(self) -> Awaitable[None] | None:
        """Send what is ready, without waiting where there is room: None then. Where time runs out while it is awaited,
        what has not left stays ready."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (leaving := self._leaving) is not None:
            self._leaving = None
            return self._send_after(leaving)
        pending = self._begin()
        return None if pending is None else self._send_rest(pending)

    async def _send_after(self, leaving: Awaitable[None]) -> None:
        await leaving
        if (pending := self.send()) is not None:
            await pending

    def _ring(self) -> None:
        self._timer = None
        if self._leaving is not None:
            if not self._leaving.done():
                # The last message has found no room yet.
                self._timer = self._loop.call_later(self._linger_s, self._ring)
                return
            if self._leaving.cancelled() or self._leaving.exception() is not None:
                # Whoever sends next hears of it.
                return
        pending = self._begin()
        # What was held is less than a chunk, so that nothing is left behind it.
        self._leaving = None if pending is None else asyncio.ensure_future(pending)

    def _begin(self) -> Awaitable[None] | None:
        if self._linger_s:
            self._next_s = self._loop.time() + self._linger_s
        self.ready = join_chunks(self.ready, self._most_bytes)
        return self._send_while_room()

    async def _send_rest(self, pending: Awaitable[None]) -> None:
        await pending
        while (waiting := self._send_while_room()) is not None:
            await waiting

    def _send_while_room(self) -> Awaitable[None] | None:
        while self.ready:
            message = self.ready.pop(0)
            found = survey(message)
            self.frames += found.documents
            self.splits.take(found)
            chunk_sent(self._stream, found.documents, len(message))
            if (pending := self._call.send(message)) is not None:
                return pending
        return None

    def close(self) -> None:
        """Send nothing more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._leaving is not None:
            self._leaving.cancel()
