"""Work that outlives its request."""

import asyncio

from helpers.as_written import run_both_ways
from ssop_router.background import Background

way = run_both_ways("ssop_router.background", "Background")


async def test_what_follows_from_work_is_waited_for_too() -> None:
    background, ended = Background(), asyncio.Event()

    async def second() -> None:
        await asyncio.sleep(0)
        ended.set()

    async def first() -> None:
        background.start(second())

    # Asked for in this turn of the loop, and begun in the next.
    asyncio.get_running_loop().call_soon(lambda: background.start(first()))
    await background.finish(60)
    assert ended.is_set()


async def test_what_takes_too_long_is_cancelled() -> None:
    background = Background()
    task = background.start(asyncio.Event().wait())
    await background.finish(0.01)
    assert (task.cancelled(), len(background)) == (True, 0)


async def test_what_is_cancelled_has_begun_so_that_it_ends_what_it_was_started_for() -> None:
    background, ended = Background(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    # Started in the turn in which the time is over.
    asyncio.get_running_loop().call_soon(lambda: background.start(work()))
    await background.finish(0)
    assert ended.is_set()


async def test_what_follows_from_a_cancel_is_waited_for_too() -> None:
    background, ended = Background(), asyncio.Event()

    async def settle() -> None:
        await asyncio.sleep(0)
        ended.set()

    async def generate() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            # As a crowd does, which begins in the next turn with all that it was asked for in this one.
            asyncio.get_running_loop().call_soon(lambda: background.start(settle()))

    background.start(generate())
    await background.finish(0.05)
    assert (ended.is_set(), len(background)) == (True, 0)


async def test_a_task_that_is_handed_over_is_waited_for() -> None:
    background, gate = Background(), asyncio.Event()
    task = asyncio.get_running_loop().create_task(gate.wait())
    background.keep(task)
    asyncio.get_running_loop().call_soon(gate.set)
    await background.finish(60)
    assert task.done()
