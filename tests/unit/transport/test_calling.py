"""What is left of a call that is broken off."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from helpers.raw_http2 import DATA, message
from unit.transport.test_raw_servers import METHOD, OK, answer, calling

pytestmark = pytest.mark.needs("native_transport")


async def test_message_that_waits_is_dropped_where_its_caller_is_cancelled_as_it_comes(tmp_path: Path) -> None:
    taken: list[bytes] = []
    begun: list[bytes] = []

    async def wait(one: bytes) -> None:
        begun.append(one)

    def take(one: bytes) -> Awaitable[None]:
        taken.append(one)
        running.cancel()
        return wait(one)

    async with calling(tmp_path) as (peer, accepted):
        running = asyncio.ensure_future(peer.stream(METHOD, b"q", take, timeout_s=60))
        server = await accepted.get()
        assert await server.until(DATA) is not None
        await server.send(answer(1, OK) + message(1, b"a", is_last=False))
        await asyncio.wait({running})
        server.close()
    # What it would have waited for would be an error of this test if nobody closed it: it warns.
    assert (taken, begun) == ([b"a"], [])
