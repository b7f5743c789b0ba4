"""Calls that could not be begun when they were asked for: their server leaves, or their time is up."""

import asyncio
from pathlib import Path

import pytest

from helpers.eventually import eventually
from helpers.raw_http2 import DATA, GOAWAY, SETTINGS, frame
from ssop_chassis.errors import MeshError
from ssop_transport.calling import Calling
from unit.transport.test_raw_servers import METHOD, calling, frames_until_ping, whole

pytestmark = pytest.mark.needs("native_transport")


async def test_call_that_waits_for_a_stream_goes_elsewhere_when_its_server_leaves(tmp_path: Path) -> None:
    async with calling(tmp_path) as (peer, accepted):
        running = [asyncio.ensure_future(peer.unary(METHOD, b"first", timeout_s=120))]
        server = await accepted.get()
        assert await server.until(DATA, 1) is not None
        running.append(asyncio.ensure_future(peer.unary(METHOD, b"second", timeout_s=120)))
        await server.send(frame(SETTINGS, 0, 0, b"\0\3" + (2).to_bytes(4, "big")))
        assert await server.until(DATA, 3) is not None
        await frames_until_ping(server)
        waiting = asyncio.ensure_future(peer.unary(METHOD, b"waiting", timeout_s=120))
        await eventually(lambda: peer._pick().stream_count == 3)
        # A place among the streams is free once the first has ended, but none may begin any more.
        await server.send(frame(GOAWAY, 0, 0, (3).to_bytes(4, "big") + bytes(4)) + whole(1, b"one"))
        assert await running[0] == b"one"
        other = await accepted.get()
        asked = await other.until(DATA, 1)
        await other.send(whole(1, b"three"))
        assert await waiting == b"three"
        await server.send(whole(3, b"two"))
        assert await running[1] == b"two"
        server.close()
        other.close()
    assert asked is not None
    assert asked.payload.endswith(b"waiting")


async def test_call_whose_time_is_up_before_it_begins_does_not_wait() -> None:
    late = Calling()
    late.start(0)
    await eventually(lambda: late._is_late)
    with pytest.raises(MeshError, match="Deadline"):
        await asyncio.wait_for(late.await_news(), 60)
    late.leave()
