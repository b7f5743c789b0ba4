"""What a node sends of one answer, beneath its service."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from prometheus_client import CollectorRegistry

from helpers.inference import HELD, Script, ScriptedGeneration, SteppedLoop, user_prompt
from ssop.v1 import frame_pb2
from ssop_chassis.call import Call
from ssop_codec import compile_schema, survey
from ssop_inference.delivery import Delivery
from ssop_inference.metrics import NodeMetrics

SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


class StalledCall:
    """A call whose client reads nothing after a message until its time is over, as of the native transport: what is
    sent has left, and what is waited for is room."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, message: bytes) -> Awaitable[None] | None:
        self.sent.append(message)
        return self._stall() if len(self.sent) == 1 else None

    async def _stall(self) -> None:
        await asyncio.Event().wait()


async def test_time_that_ends_while_nobody_reads_loses_no_frame() -> None:
    call, loop = StalledCall(), asyncio.get_running_loop()
    prompt = user_prompt("x", schema=SCHEMA)
    prompt.stream_buffer_size = 64
    delivery = Delivery(
        cast("Call", call),
        loop=loop,
        request_id="r-1",
        schema=compile_schema(SCHEMA),
        constraint=HELD,
        buffer=None,
        prompt=prompt,
        metrics=NodeMetrics(CollectorRegistry()).of("m"),
        deadline_s=loop.time() + 0.5,
    )
    await delivery.run(cast("Any", ScriptedGeneration(Script([b'["a", "b", "c", "d", "e", "f", "g", "h"', 60.0]))))
    found = survey(b"".join(call.sent))
    assert (found.is_row, found.first_seq) == (True, 1)
    values = [frame.string_value for frame in frame_pb2.Chunk.FromString(b"".join(call.sent)).frames]
    assert [value for value in values if value] == list("abcdefgh")
    assert len(call.sent) > 2


async def deliver(linger_s: float) -> list[bytes]:
    """The messages of an answer of one read for each item, while no time passes."""
    call, loop = StalledCall(), SteppedLoop()
    call.send = call.sent.append  # type: ignore[method-assign, assignment]
    delivery = Delivery(
        cast("Call", call),
        loop=cast("Any", loop),
        request_id="r-1",
        schema=compile_schema(SCHEMA),
        constraint=HELD,
        buffer=None,
        prompt=user_prompt("x", schema=SCHEMA),
        metrics=NodeMetrics(CollectorRegistry()).of("m"),
        deadline_s=loop.time() + 60,
        linger_s=linger_s,
    )
    pieces = [b'["a",', *[b'"b",'] * 8, b'"c"', b"]"]
    await delivery.run(cast("Any", ScriptedGeneration(Script(pieces))))
    assert loop.timers == 0
    return call.sent


async def test_who_lingers_gets_the_first_field_and_the_rest() -> None:
    first, rest = await deliver(1.0)
    assert [survey(message).documents for message in (first, rest)] == [2, 11]


async def test_frames_are_the_same_however_they_travel() -> None:
    apart = await deliver(0.0)
    assert len(apart) == 11
    assert b"".join(apart) == b"".join(await deliver(1.0))
