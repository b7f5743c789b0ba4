"""Time-outs that stand still while the loop does."""

import asyncio
import socket
import time

import pytest

from helpers.as_written import run_both_ways
from ssop_chassis.attention import TICK_S, Attention

way = run_both_ways("ssop_chassis.attention", "Attention")
BLOCK_S = 0.3


async def test_silence_ends_when_its_time_is_over() -> None:
    attention = Attention()
    started_s = time.monotonic()
    with pytest.raises(TimeoutError):
        async with attention.timeout(0.05):
            await asyncio.Event().wait()
    assert time.monotonic() - started_s >= 0.05 - TICK_S
    assert attention.now_s >= 0.05 - TICK_S


async def test_a_loop_that_stood_still_is_no_silence() -> None:
    lag_s: list[float] = []
    attention = Attention(lag_s.append)
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with attention.timeout(0.05):
        # The answer comes after the loop was blocked for six times the bound.
        loop.call_soon(time.sleep, BLOCK_S)
        loop.call_later(0.01, event.set)
        await event.wait()
    assert attention.now_s < 0.05
    assert sum(lag_s) > BLOCK_S / 2


async def test_an_answer_that_lies_in_the_socket_is_heard_first() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    attention = Attention()
    loop = asyncio.get_running_loop()

    def answer_and_block() -> None:
        theirs.send(b"x")
        time.sleep(BLOCK_S)

    async with attention.timeout(2 * TICK_S):
        loop.call_soon(answer_and_block)
        assert await reader.read(1) == b"x"
    writer.close()
    theirs.close()


async def test_each_wait_has_a_bound_of_its_own() -> None:
    attention = Attention()

    async def wait(delay_s: float) -> float:
        started_s = time.monotonic()
        with pytest.raises(TimeoutError):
            async with attention.timeout(delay_s):
                await asyncio.Event().wait()
        return time.monotonic() - started_s

    took_s = await asyncio.gather(wait(0.02), wait(0.12))
    assert took_s[0] < took_s[1]
    assert took_s[1] >= 0.12 - 2 * TICK_S


async def test_a_cancel_is_no_time_out() -> None:
    attention = Attention()

    async def wait() -> None:
        async with attention.timeout(60):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not attention._due_s


async def test_an_answer_ends_the_wait_and_the_clock() -> None:
    attention = Attention()
    async with attention.timeout(0.05):
        await asyncio.sleep(0)
    await asyncio.sleep(4 * TICK_S)
    before_s = attention.now_s
    await asyncio.sleep(4 * TICK_S)
    assert attention.now_s == before_s


async def test_a_future_fails_when_its_time_is_over() -> None:
    attention = Attention()
    with pytest.raises(TimeoutError):
        await attention.wait(asyncio.get_running_loop().create_future(), 0.05)
    assert attention.now_s >= 0.05 - TICK_S


async def test_a_future_that_was_late_with_its_loop_is_heard() -> None:
    attention = Attention()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    loop.call_soon(time.sleep, BLOCK_S)
    loop.call_later(0.01, future.set_result, "answer")
    assert await attention.wait(future, 0.05) == "answer"


async def test_who_is_cancelled_while_a_future_is_waited_for_hears_that() -> None:
    attention = Attention()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(attention.wait(future, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled()
