"""The one time limit of an answer."""

import asyncio

import pytest

from ssop_inference.time_limit import TimeLimit


async def test_body_that_is_late_is_stopped() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), TimeLimit(loop, loop.time() + 0.01):
        await asyncio.Event().wait()


async def test_a_moment_that_has_passed_stops_it_at_its_first_wait() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), TimeLimit(loop, loop.time() - 5):
        await asyncio.Event().wait()


async def test_body_in_time_leaves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    with TimeLimit(loop, loop.time() + 60) as limit:
        await asyncio.sleep(0)
    assert limit._timer is not None
    assert limit._timer.cancelled()


async def test_a_cancel_from_elsewhere_passes_through() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with TimeLimit(loop, loop.time() + 60):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancel_at_the_same_time_wins() -> None:
    begun = asyncio.Event()
    limits: list[TimeLimit] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with TimeLimit(loop, loop.time() + 60) as limit:
            limits.append(limit)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    task.cancel()
    limits[0]._expire()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_limits_within_each_other_know_their_own() -> None:
    loop = asyncio.get_running_loop()
    with TimeLimit(loop, loop.time() + 60):
        with pytest.raises(TimeoutError), TimeLimit(loop, loop.time() + 0.01):
            await asyncio.Event().wait()
        await asyncio.sleep(0)


async def test_an_error_of_the_body_is_its_own() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(ValueError, match="own"), TimeLimit(loop, loop.time() + 60):
        raise ValueError("own")


async def test_the_task_can_wait_again_afterwards() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError), TimeLimit(loop, loop.time() + 0.01):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
