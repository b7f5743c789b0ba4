"""Clients that have fields already, and lose what they followed or read: a killed router, a killed client."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.ledger import check_flight, check_terminal
from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import PATIENCE_MS, FleetRouter, Reply, run_fleet
from helpers.router_process import as_error
from helpers.scripted_mesh import ask
from helpers.scripted_node import SCHEMA, ScriptedNode, encode, going_on, node_status_chunk
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import FrameKind
from ssop_chassis.call import Call
from ssop_sdk import AsyncSsopClient

LEASE_MS = 4_000
"""A router renews its leases many times within it, also where it gets nothing of the machine for seconds."""
GOOD = '{"mood":"fine","score":3}'
Servers = tuple[RedisServer, RedisServer]
CLIENT = """
import asyncio, json, sys
from ssop_sdk import AsyncSsopClient

async def main(key, target, schema):
    async with AsyncSsopClient(key, target, policy="full") as client:
        stream = client.generate("x", output_schema=json.loads(schema), request_id="r-1", resume_window_ms=30_000)
        async for frame in stream:
            print(stream.last_seq, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


class HalfWay:
    """A script that sends the first field, and the rest once its gate is open; goes on where it is asked to."""

    def __init__(self) -> None:
        self.calls = 0
        self.continued = 0
        self.gate = asyncio.Event()

    async def __call__(self, call: Call, request: Any) -> None:
        self.calls += 1
        if request.HasField("continue_from"):
            self.continued += 1
            await going_on(GOOD)(call, request)
            return
        chunks = encode(GOOD)
        await call.write(node_status_chunk() + chunks[0] + chunks[1])
        await self.gate.wait()
        for chunk in chunks[2:]:
            await call.write(chunk)


class Reader:
    """A client that is read to its end, and says when it has a field."""

    def __init__(self, router: FleetRouter) -> None:
        self.reply = Reply()
        self._call = router.open(ask(policy="full"))
        self.task = asyncio.ensure_future(self._read())

    @property
    def has_field(self) -> bool:
        return any(frame.kind == FrameKind.FRAME_KIND_VALUE for frame in self.reply.frames)

    async def _read(self) -> None:
        try:
            async for chunk in self._call:
                self.reply.frames.extend(chunk.frames)
        except Exception as error:  # noqa: BLE001 - whatever the call ends with is looked at by the test
            self.reply.error = as_error(error)  # type: ignore[arg-type]


async def test_followers_of_a_killed_router_get_the_rest_for_one_more_call(servers: Servers, tmp_path: Path) -> None:
    model = HalfWay()
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], model)}
    async with run_fleet(tmp_path, nodes, servers=servers, routers=3, lease_ms=LEASE_MS, store_ms=PATIENCE_MS) as fleet:
        leader = Reader(fleet.routers[0])
        await eventually(lambda: leader.has_field)
        followers = [Reader(fleet.routers[number]) for number in (1, 2, 1, 2)]
        await eventually(lambda: all(follower.has_field for follower in followers))
        fleet.routers[0].kill()
        await asyncio.gather(leader.task, *(follower.task for follower in followers))
    assert leader.reply.error is not None
    assert [follower.reply.error for follower in followers] == [None] * 4
    assert {follower.reply.document for follower in followers} == {b"".join(encode(GOOD))}
    check_flight(model.calls, 2)
    assert model.continued == 1
    billed = [
        frame.accounting.is_billed
        for follower in followers
        for frame in follower.reply.frames
        if frame.kind == FrameKind.FRAME_KIND_ACCOUNTING
    ]
    assert sorted(billed) == [False, False, False, True]


async def test_answer_of_a_client_that_was_killed_is_resumed_without_running_the_model_again(tmp_path: Path) -> None:
    model = HalfWay()
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL], model)}
    async with run_fleet(tmp_path, nodes, routers=1) as fleet:
        router = fleet.routers[0]
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, router.key, router.address, json.dumps(SCHEMA)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            last_seq = int(await asyncio.to_thread(process.stdout.readline))
            process.kill()
        model.gate.set()
        async with AsyncSsopClient(router.key, router.address) as client:
            stream = client.resume("r-1", after_seq=last_seq, output_schema=SCHEMA)
            shown = [frame.path async for frame in stream if frame.kind == FrameKind.FRAME_KIND_VALUE]
            assert await stream.result() == {"mood": "fine", "score": 3}
        await eventually(lambda: any(line.get("message") == "request" for line in router.log))
        check_terminal(["r-1"], [line["request_id"] for line in router.log if line.get("message") == "request"])
    assert shown == ["/score"]
    assert model.calls == 1
