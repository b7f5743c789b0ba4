"""A time-out that moves with every chunk."""

import asyncio

import pytest

from ssop_router.patience import Patience


async def run(first_s: float, *then: float | None) -> None:
    """Wait for ever, with these times set one after the other, each a moment after the one before."""
    async with Patience(first_s) as patience:
        for delay_s in then:
            patience.set(delay_s)
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


async def test_silence_ends_the_wait() -> None:
    with pytest.raises(TimeoutError):
        await run(0.001)


async def test_time_that_was_set_later_counts_from_then() -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    with pytest.raises(TimeoutError):
        await run(0.02, 0.2)
    assert loop.time() - started_s >= 0.19


async def test_time_that_was_made_shorter_ends_sooner() -> None:
    with pytest.raises(TimeoutError):
        await run(3_600, 0.001)


async def test_time_that_is_set_again_after_none_runs_out() -> None:
    with pytest.raises(TimeoutError):
        await run(0.001, None, 0.001)


async def test_without_an_end_nothing_runs_out() -> None:
    async with Patience(0.001) as patience:
        patience.set(None)
        assert patience.is_endless
        await asyncio.sleep(0.05)


async def test_nothing_runs_out_after_the_end() -> None:
    async with Patience(0.01):
        pass
    await asyncio.sleep(0.05)


async def test_a_cancel_passes_through() -> None:
    task = asyncio.get_running_loop().create_task(run(3_600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
