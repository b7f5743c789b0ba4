"""Time-outs that share a timer: they end as asyncio's do, never too soon, and others' faults are not theirs."""

import asyncio
from collections.abc import Callable

import pytest

from helpers.eventually import eventually
from ssop_chassis import deadline
from ssop_chassis.deadline import COARSE_S, SLOT_S, Alarm, Deadline


class Bell(Alarm):
    """An alarm that notes when it rang."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        super().__init__()
        self._on_ring = on_ring

    def ring(self) -> None:
        self._on_ring()


async def run(first_s: float | None, *then: float | None) -> None:
    """Wait for ever, with these times set one after the other, each a moment after the one before."""
    with Deadline(first_s) as limit:
        for delay_s in then:
            limit.set(delay_s)
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


@pytest.mark.parametrize("delay_s", [-1, 0, 0.001, 0.3, COARSE_S, COARSE_S + 0.01, COARSE_S + SLOT_S])
async def test_the_time_ends_the_wait_and_not_too_soon(delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    with pytest.raises(TimeoutError):
        await run(delay_s)
    # Timers of the loop are exact to a millisecond.
    assert loop.time() - started_s >= delay_s - 0.002


async def test_time_that_was_set_later_counts_from_then() -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    with pytest.raises(TimeoutError):
        await run(0.02, 0.2)
    assert loop.time() - started_s >= 0.19


async def test_time_that_was_made_shorter_ends_sooner() -> None:
    with pytest.raises(TimeoutError):
        await run(3_600, 0.001)


async def test_time_that_was_made_shorter_within_the_wheel_ends_sooner() -> None:
    with pytest.raises(TimeoutError):
        await run(3_600, COARSE_S)


async def test_time_that_is_set_again_after_none_runs_out() -> None:
    with pytest.raises(TimeoutError):
        await run(0.001, None, 0.001)


async def test_time_that_was_none_first_runs_out() -> None:
    with pytest.raises(TimeoutError):
        await run(None, 0.001)


async def test_without_an_end_nothing_runs_out() -> None:
    with Deadline(0.001) as limit:
        limit.set(None)
        assert limit.is_endless
        await asyncio.sleep(0.05)


async def test_nothing_runs_out_after_the_end() -> None:
    with Deadline(0.01):
        pass
    await asyncio.sleep(0.05)


async def test_a_cancel_passes_through() -> None:
    task = asyncio.get_running_loop().create_task(run(3_600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancel_that_comes_with_the_end_is_a_cancel() -> None:
    limits: list[Deadline] = []

    async def wait() -> None:
        with Deadline(3_600) as limit:
            limits.append(limit)
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    limits[0].expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_of_two_ends_alone() -> None:
    with Deadline(3_600):
        with pytest.raises(TimeoutError):
            await run(0.001)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def test_the_outer_of_two_ends_both() -> None:
    with pytest.raises(TimeoutError), Deadline(0.001):
        await run(3_600)


async def test_an_error_that_comes_with_the_end_is_itself() -> None:
    async def fail() -> None:
        with Deadline(0.001):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError("own") from None

    with pytest.raises(KeyError):
        await fail()
    await asyncio.sleep(0)


async def test_what_was_stopped_does_not_ring() -> None:
    rung: list[str] = []
    stopped, heard = Bell(lambda: rung.append("stopped")), Bell(lambda: rung.append("heard"))
    for alarm in (stopped, heard):
        alarm.start(COARSE_S)
    stopped.stop()
    await eventually(lambda: rung == ["heard"])


async def test_of_two_that_are_over_together_one_stops_the_other() -> None:
    rung: list[int] = []
    alarms: list[Bell] = []

    def ring() -> None:
        rung.append(1)
        for alarm in alarms:
            alarm.stop()

    alarms += [Bell(ring), Bell(ring)]
    for alarm in alarms:
        alarm.start(COARSE_S)
    await eventually(lambda: bool(rung))
    await asyncio.sleep(2 * SLOT_S)
    assert rung == [1]


async def test_what_is_set_again_rings_once() -> None:
    rung: list[int] = []
    alarm = Bell(lambda: rung.append(1))
    for delay_s in (3_600, COARSE_S, 0.02):
        alarm.start(delay_s)
    await eventually(lambda: bool(rung))
    await asyncio.sleep(COARSE_S + 2 * SLOT_S)
    assert rung == [1]


async def test_nothing_is_left_of_many_that_did_not_run_out() -> None:
    for number in range(2_000):
        with Deadline(COARSE_S + number / 4_000):
            pass
    wheel = deadline._wheel()
    assert not any(wheel._slots.values())
    await eventually(lambda: wheel._timer is None and not wheel._slots)


def test_each_loop_has_its_own() -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await run(COARSE_S)

    asyncio.run(wait())
    asyncio.run(wait())
