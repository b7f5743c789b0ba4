"""Pacing: closed and open loops, and what they count."""

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from helpers.load_figures import LoadOrder
from helpers.load_pace import Answer, OnDone, Pace, machine_ticks

STALL_S = 0.3


class Asker:
    """Answers after `delay_s`; `before` is called with each request's number."""

    def __init__(self, delay_s: float = 0.0, before: Callable[[int], None] = lambda _: None, fault: str = "") -> None:
        self._delay_s, self._before, self._fault = delay_s, before, fault
        self.running = self.most_running = 0

    def ask(self, number: int, due_s: float, on_done: OnDone) -> None:
        self._before(number)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        answer = Answer(due_s)
        answer.fault = self._fault
        asyncio.get_running_loop().call_later(self._delay_s, self._end, answer, on_done)

    def _end(self, answer: Answer, on_done: OnDone) -> None:
        self.running -= 1
        answer.first_s = time.perf_counter()
        on_done(answer)


def order(**changes: object) -> LoadOrder:
    values: dict[str, object] = {"client": "native", "targets": [""], "warm_s": 0.1, "seconds": 0.5} | changes
    return LoadOrder(**values)  # type: ignore[arg-type]


async def test_closed_loop_keeps_its_width() -> None:
    asker = Asker(0.01)
    result = await Pace(order(width=7), asker).run()
    assert (asker.most_running, asker.running, result.is_saturated) == (7, 0, False)


async def test_closed_loop_ends_at_its_count() -> None:
    result = await Pace(order(width=4, count=50, seconds=300.0), Asker()).run()
    assert result.done == 50


async def test_open_loop_counts_from_the_moment_a_request_was_due() -> None:
    def stall(number: int) -> None:
        if number == 100:
            time.sleep(STALL_S)  # the client itself stands still, as under a garbage collector

    result = await Pace(order(rate=200.0), Asker(before=stall)).run()
    # Those that were due meanwhile have waited, though each was answered as soon as it was asked.
    assert result.p99_ms >= 500 * STALL_S


async def test_rate_that_can_not_be_had_is_saturated() -> None:
    result = await Pace(order(rate=1_000.0, max_in_flight=5), Asker(0.1)).run()
    assert result.is_saturated


async def test_faults_are_no_answers() -> None:
    result = await Pace(order(width=2, count=20), Asker(fault="status 14: gone")).run()
    assert (result.failed, result.faults, result.rate) == (20, {"status 14: gone": 20}, 0.0)


async def test_lost_connection_ends_the_load() -> None:
    def lose(number: int) -> None:
        if number > 10:
            raise ConnectionError("gone")

    result = await asyncio.wait_for(Pace(order(width=2, seconds=300.0), Asker(before=lose)).run(), 60)
    assert result.faults["connection lost"] >= 1


def test_ticks_of_the_machine_add_up() -> None:
    whole, busy, stolen = machine_ticks()
    assert whole >= busy >= stolen >= 0


@pytest.mark.parametrize("rate", [0.0, 500.0])
async def test_memory_is_sampled_when_asked(rate: float) -> None:
    result = await Pace(order(rate=rate, sample_s=0.05, pids={"self": os.getpid()}), Asker()).run()
    assert result.samples
    assert all(rss["self"] > 0 for _, rss in result.samples)
