"""What a node sends of one answer, beneath its service."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from prometheus_client import CollectorRegistry

from helpers.as_written import run_both_ways
from helpers.inference import HELD, Script, ScriptedGeneration, SteppedLoop, asked, user_prompt
from ssop.v1 import frame_pb2
from ssop_chassis.call import Call
from ssop_codec import compile_schema, survey
from ssop_inference.delivery import Delivery, Terms
from ssop_inference.metrics import NodeMetrics
from ssop_inference.plan import Plan

way = run_both_ways("ssop_inference.delivery", "Delivery", "Terms")

SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


class StalledCall:
    """A call whose client reads nothing after a message until its time is over, as of the native transport: what is
    sent has left, and what is waited for is room."""

    def __init__(self, left_s: float) -> None:
        self.sent: list[bytes] = []
        self._left_s = left_s

    def remaining_s(self) -> float:
        return self._left_s

    def send(self, message: bytes) -> Awaitable[None] | None:
        self.sent.append(message)
        return self._stall() if len(self.sent) == 1 else None

    async def _stall(self) -> None:
        await asyncio.Event().wait()


async def test_time_that_ends_while_nobody_reads_loses_no_frame() -> None:
    call, loop = StalledCall(0.5), asyncio.get_running_loop()
    prompt = user_prompt("x", schema=SCHEMA)
    prompt.stream_buffer_size = 64
    delivery = Delivery(
        cast("Call", call),
        loop,
        Terms(NodeMetrics(CollectorRegistry()).of("m")),
        asked(prompt),
        Plan(compile_schema(SCHEMA), HELD).manner,
    )
    await delivery.run(cast("Any", ScriptedGeneration(Script([b'["a", "b", "c", "d", "e", "f", "g", "h"', 60.0]))))
    found = survey(b"".join(call.sent))
    assert (found.is_row, found.first_seq) == (True, 1)
    values = [frame.string_value for frame in frame_pb2.Chunk.FromString(b"".join(call.sent)).frames]
    assert [value for value in values if value] == list("abcdefgh")
    assert len(call.sent) > 2


async def deliver(linger_s: float) -> list[bytes]:
    """The messages of an answer of one read for each item, while no time passes."""
    call, loop = StalledCall(60.0), SteppedLoop()
    call.send = call.sent.append  # type: ignore[method-assign, assignment]
    delivery = Delivery(
        cast("Call", call),
        cast("Any", loop),
        Terms(NodeMetrics(CollectorRegistry()).of("m"), round(linger_s * 1000)),
        asked(user_prompt("x", schema=SCHEMA)),
        Plan(compile_schema(SCHEMA), HELD).manner,
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
