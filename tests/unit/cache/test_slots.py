"""Slots: how many may ask a Redis at the same time, and what becomes of those that wait."""

import asyncio

import pytest

from helpers.as_written import run_both_ways
from ssop_cache.slots import Slots

way = run_both_ways("ssop_cache.slots", "Slots")


async def begin_wait(slots: Slots) -> "asyncio.Task[None]":
    """One that waits, and is known to."""
    task = asyncio.ensure_future(slots.wait())
    await asyncio.sleep(0)
    return task


async def test_there_are_as_many_as_were_said() -> None:
    slots = Slots(2)
    assert [slots.take() for _ in range(3)] == [True, True, False]


async def test_one_that_is_given_back_can_be_taken() -> None:
    slots = Slots(1)
    slots.take()
    slots.give()
    assert slots.take()


async def test_who_waited_first_goes_first() -> None:
    slots = Slots(1)
    slots.take()
    first, second = await begin_wait(slots), await begin_wait(slots)
    slots.give()
    await first
    assert not second.done()
    slots.give()
    await second


async def test_nobody_overtakes_one_that_was_given_a_slot_and_has_not_run_yet() -> None:
    slots = Slots(1)
    slots.take()
    waiting = await begin_wait(slots)
    slots.give()
    assert not slots.take()
    await waiting


async def test_one_that_gave_up_is_passed_over() -> None:
    slots = Slots(1)
    slots.take()
    first, second = await begin_wait(slots), await begin_wait(slots)
    first.cancel()
    # Before the one that gave up has run.
    slots.give()
    await second
    slots.give()
    assert [slots.take(), slots.take()] == [True, False]


async def test_one_that_gave_up_leaves_nothing_behind() -> None:
    slots = Slots(1)
    slots.take()
    waiting = await begin_wait(slots)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    slots.give()
    assert [slots.take(), slots.take()] == [True, False]


async def test_a_slot_of_one_that_is_cancelled_before_it_hears_of_it_goes_on() -> None:
    slots = Slots(1)
    slots.take()
    first, second = await begin_wait(slots), await begin_wait(slots)
    slots.give()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second


async def test_a_slot_of_one_that_is_cancelled_too_late_is_free_where_nobody_waits() -> None:
    slots = Slots(1)
    slots.take()
    waiting = await begin_wait(slots)
    slots.give()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [slots.take(), slots.take()] == [True, False]
