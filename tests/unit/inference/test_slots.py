import asyncio
from collections.abc import Callable

import pytest

from helpers.as_written import run_both_ways
from helpers.eventually import eventually
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_inference.backend import Token
from ssop_inference.slots import Slot, SlotQueue
from ssop_inference.token_stream import MAX_BUFFERED_TOKENS, TokenStream

way = run_both_ways("ssop_inference.slots", "Slot", "SlotQueue")


def queue_of(slots: int = 1, max_waiting: int = 8, on_change: Callable[[], None] = lambda: None) -> SlotQueue:
    loop = asyncio.get_running_loop()
    return SlotQueue(slots, max_waiting=max_waiting, clock=loop.time, on_change=on_change)


async def take(queue: SlotQueue, priority: int = 0, timeout_s: float = 5.0) -> Slot:
    return await queue.take(priority=priority, deadline_s=asyncio.get_running_loop().time() + timeout_s)


async def test_slots_are_given_in_order_of_arrival() -> None:
    queue = queue_of()
    order: list[int] = []

    async def use(number: int) -> None:
        slot = await take(queue)
        order.append(number)
        slot.release()

    held = await take(queue)
    users = [asyncio.ensure_future(use(number)) for number in range(4)]
    await eventually(lambda: queue.waiting == 4)
    held.release()
    await asyncio.gather(*users)
    assert order == [0, 1, 2, 3]


async def test_slot_is_free_until_it_is_held() -> None:
    queue = queue_of()
    held = queue.take_free()
    assert held is not None
    assert queue.take_free() is None
    held.release()
    assert queue.take_free() is not None


async def test_lower_priority_number_runs_first() -> None:
    queue = queue_of()
    order: list[int] = []

    async def use(priority: int) -> None:
        slot = await take(queue, priority)
        order.append(priority)
        slot.release()

    held = await take(queue)
    users = [asyncio.ensure_future(use(priority)) for priority in (2, 1, 0)]
    await eventually(lambda: queue.waiting == 3)
    held.release()
    await asyncio.gather(*users)
    assert order == [0, 1, 2]


async def test_full_queue_is_overloaded_with_a_delay() -> None:
    queue = queue_of(max_waiting=0)
    await take(queue)
    with pytest.raises(MeshError) as caught:
        await take(queue)
    assert caught.value.reason == ErrorReason.ERROR_REASON_OVERLOADED
    assert caught.value.retry_after_ms is not None


async def test_deadline_in_the_queue_is_named() -> None:
    queue = queue_of()
    await take(queue)
    with pytest.raises(MeshError) as caught:
        await take(queue, timeout_s=0.01)
    assert caught.value.reason == ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED
    assert caught.value.metadata == {"stage": "queue"}
    assert queue.waiting == 0


async def test_cancelled_waiter_takes_nothing() -> None:
    queue = queue_of()
    held = await take(queue)
    waiter = asyncio.ensure_future(take(queue))
    await eventually(lambda: queue.waiting == 1)
    waiter.cancel()
    await asyncio.wait({waiter})
    held.release()
    assert (queue.waiting, queue.busy) == (0, 0)


async def test_waiter_cancelled_in_the_turn_of_its_grant_gives_the_slot_on() -> None:
    queue = queue_of()
    held = await take(queue)
    first, second = asyncio.ensure_future(take(queue)), asyncio.ensure_future(take(queue))
    await eventually(lambda: queue.waiting == 2)
    held.release()
    first.cancel()
    slot = await second
    assert queue.busy == 1
    slot.release()
    assert queue.busy == 0


async def test_release_is_idempotent() -> None:
    queue = queue_of()
    slot = await take(queue)
    slot.release()
    slot.release()
    assert queue.busy == 0


async def test_changes_are_told() -> None:
    changes: list[None] = []
    queue = queue_of(on_change=lambda: changes.append(None))
    (await take(queue)).release()
    assert len(changes) == 2


async def test_tokens_arrive_in_batches_and_end() -> None:
    stream = TokenStream(asyncio.get_running_loop())

    def produce() -> None:
        for number in range(5):
            assert stream.push(Token(b"%d" % number))
        stream.finish()

    await asyncio.to_thread(produce)
    assert [token.text for token in await stream.read()] == [b"0", b"1", b"2", b"3", b"4"]
    assert await stream.read() == []


async def test_error_comes_after_the_tokens_before_it() -> None:
    stream = TokenStream(asyncio.get_running_loop())
    stream.push(Token(b"a"))
    stream.finish(ValueError("broken"))
    assert len(await stream.read()) == 1
    with pytest.raises(ValueError, match="broken"):
        await stream.read()


async def test_full_buffer_holds_the_engine_until_there_is_room() -> None:
    stream = TokenStream(asyncio.get_running_loop())
    pushed: list[int] = []

    def produce() -> None:
        for number in range(MAX_BUFFERED_TOKENS + 10):
            stream.push(Token(b"x"))
            pushed.append(number)

    producing = asyncio.ensure_future(asyncio.to_thread(produce))
    await eventually(lambda: len(pushed) == MAX_BUFFERED_TOKENS)
    assert len(await stream.read()) == MAX_BUFFERED_TOKENS
    await producing
    assert len(pushed) == MAX_BUFFERED_TOKENS + 10


async def test_cancel_wakes_an_engine_that_waits_for_room() -> None:
    stream = TokenStream(asyncio.get_running_loop())

    def produce() -> bool:
        while stream.push(Token(b"x")):
            pass
        return True

    producing = asyncio.ensure_future(asyncio.to_thread(produce))
    await eventually(lambda: len(stream._tokens) == MAX_BUFFERED_TOKENS)
    stream.cancel()
    assert await producing


def test_closed_loop_stops_the_engine() -> None:
    loop = asyncio.new_event_loop()
    stream = TokenStream(loop)
    loop.close()
    assert not stream.push(Token(b"x"))
    assert stream.should_stop()
