"""What is left of a call that is broken off."""

import asyncio
from typing import Any, cast

from ssop_transport.calling import Streaming


class _Stream:
    """A stream with one message."""

    is_over = False

    def __init__(self) -> None:
        self._messages = [b"a"]

    def take(self) -> bytes | None:
        return self._messages.pop() if self._messages else None

    def leave(self) -> None:
        pass

    def reset(self) -> None:
        pass


async def test_message_that_waits_is_dropped_where_its_caller_is_cancelled_as_it_comes() -> None:
    begun: list[bytes] = []

    async def wait(message: bytes) -> None:
        begun.append(message)

    calling = Streaming(60, wait)
    calling.stream = cast("Any", _Stream())
    running = asyncio.ensure_future(calling.run())
    running.cancel()
    calling.news()
    pending = calling.pending
    calling.leave()
    await asyncio.wait({running})
    # One that nobody awaits would be an error of this test: it warns.
    assert pending is not None
    assert not begun
