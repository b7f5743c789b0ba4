"""What is left of a call that is broken off."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from ssop_transport.calling import Streaming


class _Stream:
    """A stream with one message."""

    is_over = False
    fault = None
    pending: Awaitable[None] | None = None

    def __init__(self, take: Any) -> None:
        self._take = take
        self._messages = [b"a"]

    def hand_over(self) -> bool:
        if self._messages:
            self.pending = self._take(self._messages.pop())
        return self.pending is not None

    def leave(self) -> None:
        pass

    def reset(self) -> None:
        pass


async def test_message_that_waits_is_dropped_where_its_caller_is_cancelled_as_it_comes() -> None:
    begun: list[bytes] = []

    async def wait(message: bytes) -> None:
        begun.append(message)

    calling = Streaming(60, wait)
    stream = _Stream(wait)
    calling.stream = cast("Any", stream)
    running = asyncio.ensure_future(calling.run())
    running.cancel()
    stream.hand_over()
    calling.news()
    pending = stream.pending
    calling.leave()
    await asyncio.wait({running})
    # One that nobody awaits would be an error of this test: it warns.
    assert pending is not None
    assert not begun
