"""Time-outs that share a timer: they end as asyncio's do, never too soon, and others' faults are not theirs."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from helpers.as_written import both_ways
from helpers.eventually import eventually
from ssop_chassis import deadline
from ssop_chassis.deadline import COARSE_S, SLOT_S


@pytest.fixture(autouse=True, params=both_ways("ssop_chassis.deadline"))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "deadline", request.param)


def Bell(on_ring: Callable[[], None]) -> Any:
    """An alarm that calls this when it rings."""

    class Ringing(deadline.Alarm):
        def ring(self) -> None:
            on_ring()

    return Ringing()


class StillLoop:
    """What an alarm needs of a loop, with a clock that stands still unless it is told to pass."""

    def __init__(self) -> None:
        self.now_s = 1_000.03
        self._handles: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now_s

    def is_running(self) -> bool:
        return True

    def call_at(self, when_s: float, call: Callable[[], Any]) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when_s, call, (), self)  # type: ignore[arg-type]
        heapq.heappush(self._handles, (when_s, next(self._count), handle))
        return handle

    def call_later(self, delay_s: float, call: Callable[[], Any]) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay_s, call)

    def call_soon(self, call: Callable[[], Any]) -> asyncio.TimerHandle:
        return self.call_at(self.now_s, call)

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def turn_until(self, end_s: float) -> None:
        """Turn, on time, up to this time."""
        while self._handles and self._handles[0][0] <= end_s:
            when_s, _, handle = heapq.heappop(self._handles)
            self.now_s = max(self.now_s, when_s)
            if not handle.cancelled():
                handle._run()
        self.now_s = end_s


@pytest.fixture
def still(way: None, monkeypatch: pytest.MonkeyPatch) -> StillLoop:
    loop = StillLoop()
    monkeypatch.setattr(deadline, "_latest", deadline._Wheel(loop))  # type: ignore[arg-type]
    return loop


async def run(first_s: float | None, *then: float | None) -> None:
    """Wait for ever, with these times set one after the other, each a moment after the one before."""
    with deadline.Deadline(first_s) as limit:
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


@pytest.mark.parametrize("delay_s", [0.4, COARSE_S, 1.01, 1.04, 1.07, 2.5, 60.001, 86_400.0])
def test_it_rings_on_time_however_far_away_it_was(still: StillLoop, delay_s: float) -> None:
    rung: list[float] = []
    started_s = still.now_s
    Bell(lambda: rung.append(still.now_s - started_s)).start(delay_s)
    still.turn_until(started_s + delay_s - 0.001)
    assert rung == []
    still.turn_until(started_s + delay_s + 1)
    assert rung == [pytest.approx(delay_s, abs=0.002)]


@pytest.mark.parametrize("number", range(20))
def test_a_margin_between_two_that_are_far_away_is_kept(still: StillLoop, number: int) -> None:
    rung: list[tuple[str, float]] = []
    still.now_s += number / 320
    outer, inner = (Bell(lambda name=name: rung.append((name, still.now_s))) for name in ("outer", "inner"))  # type: ignore[misc]
    outer.start(2.0)
    inner.start(1.98)
    still.turn_until(still.now_s + 3)
    assert [name for name, _ in rung] == ["inner", "outer"]
    assert rung[1][1] - rung[0][1] == pytest.approx(0.02, abs=0.002)


def test_a_late_loop_rings_them_in_their_order(still: StillLoop) -> None:
    rung: list[int] = []
    delays_s = [1 + 0.37 * (number * 7 % 20) for number in range(20)]
    for delay_s in delays_s:
        Bell(lambda delay_s=delay_s: rung.append(delay_s)).start(delay_s)  # type: ignore[misc]
    still.now_s += 60
    still.turn_until(still.now_s + 1)
    assert rung == sorted(delays_s)


def test_one_that_is_stopped_in_its_last_moments_does_not_ring(still: StillLoop) -> None:
    rung: list[int] = []
    alarm = Bell(lambda: rung.append(1))
    alarm.start(2.05)
    still.turn_until(still.now_s + 2.049)
    alarm.stop()
    still.turn_until(still.now_s + 3)
    assert rung == []


@pytest.mark.parametrize("delay_s", [-1, 0])
async def test_time_that_is_over_ends_the_first_wait(delay_s: float) -> None:
    with pytest.raises(TimeoutError), deadline.Deadline(delay_s):
        await asyncio.sleep(0)


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
    with deadline.Deadline(0.001) as limit:
        limit.set(None)
        assert limit.is_endless
        await asyncio.sleep(0.05)


async def test_nothing_runs_out_after_the_end() -> None:
    with deadline.Deadline(0.01):
        pass
    await asyncio.sleep(0.05)


async def test_a_cancel_passes_through() -> None:
    task = asyncio.get_running_loop().create_task(run(3_600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancel_that_comes_with_the_end_is_a_cancel() -> None:
    limits: list[deadline.Deadline] = []

    async def wait() -> None:
        with deadline.Deadline(3_600) as limit:
            limits.append(limit)
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    limits[0].expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_of_two_ends_alone() -> None:
    with deadline.Deadline(3_600):
        with pytest.raises(TimeoutError):
            await run(0.001)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def run_late(first_s: float) -> None:
    """Wait for ever on a loop that comes back when far more time has passed."""
    with deadline.Deadline(first_s):
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)
        await asyncio.Event().wait()


async def test_of_two_that_a_late_loop_finds_over_the_inner_says_so() -> None:
    with deadline.Deadline(0.02), pytest.raises(TimeoutError):
        await run_late(0.01)


async def test_of_two_that_a_late_loop_finds_over_the_outer_ends_too() -> None:
    async def go_on() -> None:
        with deadline.Deadline(0.02):
            with suppress(TimeoutError):
                await run_late(0.01)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await go_on()


async def test_the_end_comes_though_a_cancel_before_it_was_swallowed() -> None:
    async def wait() -> None:
        with deadline.Deadline(0.02):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait({task})
    assert task.cancelled()


async def test_the_outer_of_two_ends_both() -> None:
    with pytest.raises(TimeoutError), deadline.Deadline(0.001):
        await run(3_600)


async def test_an_error_that_comes_with_the_end_is_itself() -> None:
    async def fail() -> None:
        with deadline.Deadline(0.001):
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
    alarms: list[Any] = []

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
        with deadline.Deadline(COARSE_S + number / 4_000):
            pass
    wheel = deadline._wheel()
    assert not wheel._slots
    await eventually(lambda: wheel._timer is None)


async def test_alarms_that_share_a_slot_with_one_that_stops_still_ring() -> None:
    rung: list[int] = []
    alarms = [Bell(partial(rung.append, number)) for number in range(3)]
    for alarm in alarms:
        alarm.start(COARSE_S)
    alarms[0].stop()
    alarms[1].stop()
    alarms[1].start(COARSE_S)
    await eventually(lambda: len(rung) == 2)
    assert sorted(rung) == [1, 2]


def test_each_loop_has_its_own() -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await run(COARSE_S)

    asyncio.run(wait())
    asyncio.run(wait())
