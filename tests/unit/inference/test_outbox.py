"""When the messages of one answer leave."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from helpers.as_written import run_both_ways
from helpers.eventually import eventually
from helpers.inference import SteppedLoop
from ssop_chassis.call import Call
from ssop_codec import Encoder, compile_schema, scan_heads
from ssop_inference.outbox import Outbox

way = run_both_ways("ssop_inference.outbox", "Outbox")

LINGER_S = 0.5
BUFFER_BYTES = 256


class Reader:
    """A call whose client has room as long as it is told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.room: asyncio.Event | None = None

    def send(self, message: bytes) -> Awaitable[None] | None:
        self.sent.append(message)
        return None if self.room is None else self._wait(self.room)

    async def _wait(self, room: asyncio.Event) -> None:
        await room.wait()

    @property
    def numbers(self) -> list[list[int]]:
        """The document frames of each message."""
        return [[seq for _, seq, _ in scan_heads(message) if seq] for message in self.sent]


class Answer:
    """An array that grows by an item at a time."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self.reader = Reader()
        self.loop = SteppedLoop()
        self.outbox = Outbox(
            cast("Call", self.reader),
            cast("Any", self.loop),
            stream=1,
            most_bytes=BUFFER_BYTES,
            linger_s=linger_s,
        )
        schema = compile_schema({"type": "array", "items": {"type": "string"}})
        self._encoder = Encoder(schema, stream_buffer_bytes=BUFFER_BYTES)
        self._encoder.feed(b"[")

    def write(self, text: str = "x") -> None:
        self._encoder.feed(f'"{text}",'.encode())
        self.outbox.ready += self._encoder.drain(flush=True)

    def offer(self, text: str = "x") -> None:
        self.write(text)
        assert self.outbox.offer() is None


def test_without_linger_everything_leaves_at_once() -> None:
    answer = Answer(linger_s=0.0)
    for _ in range(3):
        answer.offer()
    assert answer.reader.numbers == [[1, 2], [3], [4]]


def test_first_message_leaves_at_once() -> None:
    answer = Answer()
    answer.offer()
    assert answer.reader.numbers == [[1, 2]]


def test_what_is_ready_within_the_time_leaves_together_at_its_end() -> None:
    answer = Answer()
    for _ in range(4):
        answer.offer()
    assert len(answer.reader.sent) == 1
    answer.loop.pass_time(LINGER_S)
    assert answer.reader.numbers == [[1, 2], [3, 4, 5]]


def test_what_is_held_waits_for_no_other_field() -> None:
    answer = Answer()
    answer.offer()
    answer.loop.pass_time(LINGER_S * 0.75)
    answer.offer()
    answer.loop.pass_time(LINGER_S * 0.5)
    assert answer.reader.numbers == [[1, 2], [3]]


def test_what_comes_after_the_time_leaves_at_once() -> None:
    answer = Answer()
    answer.offer()
    answer.loop.pass_time(LINGER_S)
    answer.offer()
    assert answer.reader.numbers == [[1, 2], [3]]


def test_nothing_is_sent_for_a_time_in_which_nothing_came() -> None:
    answer = Answer()
    answer.offer()
    answer.loop.pass_time(10 * LINGER_S)
    assert (len(answer.reader.sent), answer.loop.timers) == (1, 0)


def test_full_chunk_waits_for_nothing() -> None:
    answer = Answer()
    answer.offer()
    answer.offer("y" * 200)
    assert len(answer.reader.sent) == 1
    answer.offer("z" * 200)
    assert answer.reader.numbers == [[1, 2], [3], [4]]
    assert max(map(len, answer.reader.sent)) <= BUFFER_BYTES


def test_end_takes_along_what_is_held() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.write()
    assert answer.outbox.send() is None
    assert (answer.reader.numbers, answer.loop.timers) == ([[1, 2], [3, 4]], 0)


def test_closed_one_has_no_timer() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.outbox.close()
    assert answer.loop.timers == 0


async def test_held_message_without_room_is_waited_for_before_the_next() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.reader.room = room = asyncio.Event()
    answer.loop.pass_time(LINGER_S)
    answer.reader.room = None
    answer.write()
    pending = answer.outbox.send()
    assert pending is not None
    assert answer.reader.numbers == [[1, 2], [3]]
    room.set()
    await pending
    assert answer.reader.numbers == [[1, 2], [3], [4]]


async def test_what_is_ready_behind_a_held_message_leaves_together_and_begins_a_new_time() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.reader.room = room = asyncio.Event()
    answer.loop.pass_time(LINGER_S)
    answer.loop.pass_time(LINGER_S)
    answer.reader.room = None
    answer.write()
    answer.write()
    pending = answer.outbox.offer()
    assert pending is not None
    room.set()
    await pending
    answer.offer()
    assert answer.reader.numbers == [[1, 2], [3], [4, 5]]
    answer.loop.pass_time(LINGER_S)
    assert answer.reader.numbers == [[1, 2], [3], [4, 5], [6]]


async def test_error_of_a_held_message_reaches_who_sends_the_next() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()

    async def fail() -> None:
        raise ConnectionError

    answer.reader.send = lambda _: fail()  # type: ignore[method-assign, assignment]
    answer.loop.pass_time(LINGER_S)
    pending = answer.outbox.send()
    assert pending is not None
    with pytest.raises(ConnectionError):
        await pending


async def test_closed_one_leaves_no_message_that_nobody_waits_for() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.reader.room = asyncio.Event()
    answer.loop.pass_time(LINGER_S)
    answer.outbox.close()
    await asyncio.sleep(0)
    assert len(answer.reader.sent) == 2


async def test_what_is_held_leaves_once_the_last_message_had_room() -> None:
    answer = Answer()
    answer.offer()
    answer.offer()
    answer.reader.room = room = asyncio.Event()
    answer.loop.pass_time(LINGER_S)
    answer.offer()
    answer.loop.pass_time(LINGER_S)
    assert len(answer.reader.sent) == 2
    answer.reader.room = None
    room.set()
    await eventually(lambda: answer.outbox._leaving is not None and answer.outbox._leaving.done())
    answer.loop.pass_time(LINGER_S)
    assert answer.reader.numbers == [[1, 2], [3], [4]]
