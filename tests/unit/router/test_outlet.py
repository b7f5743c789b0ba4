"""Writing to a client that may go away."""

import asyncio

import pytest

from helpers.as_written import run_both_ways
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_router.outlet import DirectOutlet, finish

way = run_both_ways("ssop_router.outlet", "DirectOutlet")


async def block(_: bytes) -> None:
    await asyncio.Event().wait()


async def begin(outlet: DirectOutlet) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(finish(outlet.put(b"x", 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_detaching_frees_a_write_that_would_never_end() -> None:
    outlet = DirectOutlet(block, 1)
    task = await begin(outlet)
    outlet.detach()
    await asyncio.wait_for(task, 60)
    assert not task.cancelled()
    assert task.cancelling() == 0


async def test_detaching_frees_a_write_that_nobody_waits_for_yet() -> None:
    """A node's chunk is written in the turn in which it comes, and waited for in a later one."""
    outlet = DirectOutlet(block, 1)
    pending = outlet.put(b"x", 1)
    outlet.detach()
    task = asyncio.get_running_loop().create_task(finish(pending))
    done, _ = await asyncio.wait({task}, timeout=60)
    assert done


async def test_a_cancel_that_comes_with_detaching_is_a_cancel() -> None:
    outlet = DirectOutlet(block, 1)
    task = await begin(outlet)
    task.cancel()
    outlet.detach()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_later_writes_go_nowhere() -> None:
    outlet = DirectOutlet(block, 1)
    outlet.detach()
    assert outlet.put(b"x", 1) is None


async def test_a_chunk_for_which_there_is_room_waits_for_nothing() -> None:
    sent: list[bytes] = []
    outlet = DirectOutlet(sent.append, 1)
    assert outlet.put(b"x", 2) is None
    assert sent == [b"x"]


async def test_cancelled_request_stays_cancelled() -> None:
    task = await begin(DirectOutlet(block, 1))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_transport_that_gives_up_is_a_caller_that_went_away() -> None:
    async def give_up(_: bytes) -> None:
        raise asyncio.CancelledError

    with pytest.raises(MeshError) as caught:
        await finish(DirectOutlet(give_up, 1).put(b"x", 1))
    assert caught.value.reason == ErrorReason.ERROR_REASON_CANCELLED
