"""Waits that end together."""

import asyncio

from ssop_inference.wheel import Wheel

TICK_S = 0.004


async def test_nobody_is_woken_before_the_time() -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop, TICK_S)
    for pause_s in (0.0, 0.001, 0.0041, 0.03):
        due_s = loop.time() + pause_s
        assert await wheel.wait_until(due_s)
        assert loop.time() >= due_s


async def test_those_of_a_tick_are_woken_in_the_order_in_which_they_came() -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop, TICK_S)
    due_s = (loop.time() // TICK_S + 5) * TICK_S
    woken: list[float] = []

    async def wait(before_s: float) -> None:
        await wheel.wait_until(due_s - before_s)
        woken.append(before_s)

    await asyncio.gather(wait(0.001), wait(0.003), wait(0.002))
    assert woken == [0.001, 0.003, 0.002]


async def test_an_earlier_wait_that_comes_later_is_woken_first() -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop, TICK_S)
    woken: list[str] = []
    late, early = wheel.wait_until(loop.time() + 0.1), wheel.wait_until(loop.time() + 0.01)
    late.add_done_callback(lambda _: woken.append("late"))
    early.add_done_callback(lambda _: woken.append("early"))
    await late
    assert woken == ["early", "late"]


async def test_one_that_was_given_up_keeps_nobody_from_waking() -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop, TICK_S)
    due_s = loop.time() + 0.01
    given_up, cancelled, kept = (wheel.wait_until(due_s) for _ in range(3))
    given_up.set_result(False)
    cancelled.cancel()
    assert await kept
    assert not given_up.result()


async def test_a_long_wait_that_was_given_up_leaves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop, TICK_S)
    waiting = wheel.wait_until(loop.time() + 3_600)
    waiting.set_result(False)
    assert not await waiting
