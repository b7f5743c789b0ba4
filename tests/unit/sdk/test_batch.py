"""Batches: order, bounds, errors, giving up."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ssop_sdk.batch import run_batch, run_batch_async
from ssop_sdk.errors import RateLimited


class Meter:
    """Counts how many items run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def batch(run: Callable[[Any], Any], items: Any, **changes: Any) -> Iterator[Any]:
    options: dict[str, Any] = {"batch_size": 2, "as_completed": False, "return_errors": False}
    return run_batch(lambda item, register: run(item), items, **(options | changes))


def failing(item: int) -> int:
    if item == 1:
        raise RateLimited("m")
    return item


def test_results_come_in_order_though_the_first_is_last() -> None:
    gate = threading.Event()

    def run(item: int) -> int:
        if item == 0:
            assert gate.wait(5)
        elif item == 3:
            gate.set()
        return item * 10

    assert list(batch(run, range(4))) == [0, 10, 20, 30]


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("as_completed", [False, True])
def test_batch_size_are_in_flight_and_never_more(batch_size: int, as_completed: bool) -> None:
    meter = Meter()
    all_slots = threading.Barrier(batch_size)

    def run(item: int) -> int:
        with meter:
            all_slots.wait(5)
            return item

    list(batch(run, range(30), batch_size=batch_size, as_completed=as_completed))
    assert meter.most == batch_size


def test_as_completed_yields_the_quick_one_first() -> None:
    gate = threading.Event()

    def run(item: int) -> int:
        if item == 0:
            assert gate.wait(5)
        return item

    results = batch(run, range(2), as_completed=True)
    assert next(results) == (1, 1)
    gate.set()
    assert list(results) == [(0, 0)]


def test_error_is_raised_in_its_place() -> None:
    results = batch(failing, range(3))
    assert next(results) == 0
    with pytest.raises(RateLimited):
        next(results)


def test_errors_are_values_by_choice() -> None:
    first, second, third = batch(failing, range(3), return_errors=True)
    assert (first, third) == (0, 2)
    assert isinstance(second, RateLimited)


def test_endless_items_are_read_as_results_are_taken() -> None:
    read = itertools.count()
    results = batch(lambda item: item, read)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()  # type: ignore[attr-defined]
    assert next(read) < 20


def test_giving_up_cancels_what_runs() -> None:
    class Running:
        def __init__(self) -> None:
            self.stopped = threading.Event()

        def cancel(self) -> None:
            self.stopped.set()

    streams: list[Running] = []

    def run(item: int, register: Callable[[Any], None]) -> int:
        if item == 0:
            return item
        stream = Running()
        register(stream)
        streams.append(stream)
        assert stream.stopped.wait(5)
        return item

    results = run_batch(run, range(9), batch_size=2, as_completed=False, return_errors=False)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert all(stream.stopped.is_set() for stream in streams)


async def test_async_batch_keeps_order_and_bound() -> None:
    meter = Meter()

    async def run(item: int) -> int:
        with meter:
            for _ in range(5):
                await asyncio.sleep(0)
            return item

    results = run_batch_async(run, range(20), batch_size=3, as_completed=False, return_errors=False)
    assert [r async for r in results] == list(range(20))
    assert meter.most == 3


async def test_async_batch_takes_async_items_and_returns_errors() -> None:
    async def items() -> Any:
        for number in range(3):
            yield number

    async def run(item: int) -> int:
        return failing(item)

    results = run_batch_async(run, items(), batch_size=1, as_completed=True, return_errors=True)
    outcome = [pair async for pair in results]
    assert [index for index, _ in outcome] == [0, 1, 2]
    assert isinstance(outcome[1][1], RateLimited)


async def test_closing_an_async_batch_cancels_its_tasks() -> None:
    cancelled = 0

    async def run(item: int) -> int:
        nonlocal cancelled
        if item == 0:
            return item
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return item

    results: Any = run_batch_async(run, range(9), batch_size=3, as_completed=False, return_errors=False)
    assert await anext(results) == 0
    await asyncio.sleep(0)
    await results.aclose()
    assert cancelled in (2, 3)
