"""Threads behind a bounded queue."""

import asyncio
from collections.abc import Iterator
from threading import Event

import pytest

from helpers.eventually import eventually
from ssop_chassis.errors import MeshError
from ssop_rag.pool import Priority, WorkPool


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    pool = WorkPool("test", threads=1, max_queue=2)
    yield pool
    pool.close()


async def test_queries_go_before_indexing(pool: WorkPool) -> None:
    gate, order = Event(), []
    running = asyncio.ensure_future(pool.run(Priority.QUERY, gate.wait))
    await asyncio.sleep(0)
    later = [
        asyncio.ensure_future(pool.run(Priority.INDEX, lambda: order.append("index"))),
        asyncio.ensure_future(pool.run(Priority.QUERY, lambda: order.append("query"))),
    ]
    await eventually(lambda: pool.queued == 2)
    gate.set()
    await asyncio.gather(running, *later)
    assert order == ["query", "index"]


async def test_a_full_queue_is_overloaded(pool: WorkPool) -> None:
    gate = Event()
    waiting = [asyncio.ensure_future(pool.run(Priority.QUERY, gate.wait)) for _ in range(3)]
    await eventually(lambda: pool.queued == 2)
    with pytest.raises(MeshError, match="full") as caught:
        await pool.run(Priority.QUERY, gate.wait)
    assert caught.value.reason_name == "OVERLOADED"
    gate.set()
    await asyncio.gather(*waiting)


async def test_try_run_waits_for_a_thread_in_a_bounded_queue(pool: WorkPool) -> None:
    gate = Event()
    tried = [pool.try_run(gate.wait) for _ in range(4)]
    assert [one is None for one in tried] == [False, False, False, True]
    gate.set()
    assert await asyncio.gather(*[one for one in tried if one is not None]) == [True] * 3
    await eventually(lambda: pool.try_run(lambda: True) is not None)


async def test_try_run_that_is_cancelled_before_it_starts_leaves_room(pool: WorkPool) -> None:
    for _ in range(20):
        tried = [one for _ in range(3) if (one := pool.try_run(lambda: 1)) is not None]
        assert len(tried) == 3
        for one in tried:
            one.cancel()
        await asyncio.wait(tried)
        await asyncio.sleep(0)
    await eventually(lambda: pool.queued == 0)
    assert await pool.run(Priority.QUERY, lambda: 2) == 2


async def test_a_cancelled_caller_leaves_the_queue(pool: WorkPool) -> None:
    gate = Event()
    running = asyncio.ensure_future(pool.run(Priority.QUERY, gate.wait))
    waiting = asyncio.ensure_future(pool.run(Priority.QUERY, lambda: 1))
    await eventually(lambda: pool.queued == 1)
    waiting.cancel()
    await eventually(lambda: pool.queued == 0)
    gate.set()
    await running


async def test_a_thread_is_free_after_a_fault(pool: WorkPool) -> None:
    with pytest.raises(ZeroDivisionError):
        await pool.run(Priority.QUERY, lambda: 1 // 0)
    assert await pool.run(Priority.QUERY, lambda: 2) == 2


async def test_a_cancelled_function_keeps_its_thread_until_it_returns(pool: WorkPool) -> None:
    gate, started = Event(), Event()

    def hold() -> bool:
        started.set()
        return gate.wait()

    running = asyncio.ensure_future(pool.run(Priority.QUERY, hold))
    await eventually(started.is_set)
    running.cancel()
    await asyncio.wait({running})
    waiting = asyncio.ensure_future(pool.run(Priority.QUERY, lambda: 3))
    await eventually(lambda: pool.queued == 1)
    gate.set()
    assert await waiting == 3
