"""However requests end, and whatever ends together, nothing of them is left: places, leases, reservations, records."""

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import GOOD, Mesh, R, Script, ask, encode, node_status_chunk, run_router
from ssop.v1.frame_pb2 import Chunk, FrameKind
from ssop_chassis.call import Call, Outlives
from ssop_chassis.deadline import Deadline
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_router.job import Intake, Job

REQUESTS = 150
PRINCIPALS = [Principal(tenant, "k", frozenset({"lite", "full", "ssop"})) for tenant in ("acme", "beta")]
TIMEOUTS_S = (0.01, 0.03, 0.08, 0.3, 2.0)
LEAVES_S = (0, 0.001, 0.005, 0.02, 0.05)
WHOLE = list(Chunk.FromString(b"".join(encode(GOOD))).frames)


class Client:
    """A call as the native transport has it: one task, which is asked before it is cancelled."""

    def __init__(self, rng: random.Random) -> None:
        self.task: asyncio.Task[None] | None = None
        self.chunks: list[bytes] = []
        self.is_gone = False
        self._rng = rng
        self._outlives: Outlives | None = None
        self._room = asyncio.Event()

    def send(self, chunk: bytes) -> Awaitable[None] | None:
        self.chunks.append(chunk)
        return self._wait() if self._rng.random() < 0.3 else None

    async def _wait(self) -> None:
        """Some clients never read again."""
        if self._rng.random() < 0.85:
            asyncio.get_running_loop().call_later(self._rng.random() * 0.02, self._room.set)
        await self._room.wait()

    def carry(self, work: Coroutine[Any, Any, None], outlives: Outlives) -> Awaitable[None]:
        self._outlives = outlives
        return work

    def leave(self) -> None:
        if self.task is None or self.is_gone:
            return
        self.is_gone = True
        if self._outlives is None or not self._outlives(self.task):
            self.task.cancel()


def unsteady(rng: random.Random) -> Script:
    """A node that goes on where it is asked to, and now and then pauses, fails, hangs or leaves a frame out."""

    async def script(call: Call, request: Any) -> None:
        await call.write(node_status_chunk())
        begun = request.continue_from.next_seq - 1 if request.HasField("continue_from") else 0
        for frame in WHOLE[begun:]:
            chance = rng.random()
            if chance < 0.1:
                await asyncio.sleep(rng.random() * 0.03)
            elif chance < 0.13:
                raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
            elif chance < 0.14:
                await asyncio.Event().wait()
            elif chance < 0.15:
                continue
            await call.write(Chunk(frames=[frame]).SerializeToString(deterministic=True))

    return script


async def request_once(mesh: Mesh, rng: random.Random, number: int, jobs: list[Job]) -> None:
    """One request, to whatever end; one that goes well has brought the whole answer."""
    client, timeout_s, principal = Client(rng), rng.choice(TIMEOUTS_S), rng.choice(PRINCIPALS)
    request = ask(f"question {rng.randrange(6)}", request_id=f"r{number}")
    request.resume_window_ms = rng.choice([0, 0, 0, 0, 0, 20])
    request.policy = rng.choice(["", "", "cascade", "lite", "no_cache"])

    async def serve() -> None:
        with Deadline(timeout_s):
            jobs.append(mesh.router.pipeline.accept(Intake(request, principal, timeout_s)))
            await mesh.router.pipeline.serve(jobs[-1], client.send, client.carry)

    client.task = asyncio.get_running_loop().create_task(serve())
    if rng.random() < 0.5:
        asyncio.get_running_loop().call_later(rng.choice(LEAVES_S), client.leave)
    await asyncio.wait({client.task})
    if client.task.cancelled() or client.task.exception() is not None or client.is_gone:
        assert client.task.cancelled() or isinstance(client.task.exception(), MeshError | TimeoutError | None)
        return
    frames = Chunk.FromString(b"".join(client.chunks)).frames
    assert [frame for frame in frames if frame.kind < FrameKind.FRAME_KIND_DECISION] == WHOLE
    assert frames[-1].accounting.frames_sent == len(WHOLE)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_left_of_requests_that_end_in_whatever_way(seed: int) -> None:
    rng = random.Random(seed)
    async with run_router(
        append_interval_ms=5,
        continue_wait_ms=10,
        first_field_timeout_ms=60,
        stall_timeout_ms=60,
        # An admission whose answer is lost keeps its lease until that lapses.
        admission_timeout_ms=60_000,
    ) as mesh:
        for node in mesh.nodes.values():
            node.script = unsteady(rng)
        jobs: list[Job] = []
        async with asyncio.TaskGroup() as group:
            for number in range(REQUESTS):
                group.create_task(request_once(mesh, rng, number, jobs))
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.006)
        await eventually(mesh.is_quiet)
        answers = mesh.router.pipeline._answers
        assert answers.renewals is not None
        assert (answers.renewals._held, answers._promises._asking) == ({}, {})
        assert [node.in_flight for node in mesh.router.nodes] == [0] * len(mesh.nodes)
        assert {one.request_id for one in mesh.cache.admitted} <= mesh.cache.settled.keys()
        assert "open" not in {one.state for one in mesh.cache.generations.values()}
        counted = [one for metric in mesh.registry.collect() for one in metric.samples]
        ended = [one.value for one in counted if one.name == "ssop_router_requests_total"]
        assert sum(ended) == len(jobs)
