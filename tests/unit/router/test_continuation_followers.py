"""Answers that were cut while others followed them: who goes on, and what followers see."""

import asyncio

import pytest

from helpers.continuations import WHOLE_CHUNKS, asked_to_go_on, assert_whole, everywhere
from helpers.eventually import eventually
from helpers.scripted_mesh import (
    Answer,
    Mesh,
    R,
    ask,
    node_status_chunk,
    read_all,
    reason,
    run_router,
)
from ssop.v1.frame_pb2 import Chunk, FrameKind
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError


async def test_follower_hears_of_the_continuation_nothing_but_frames(mesh: Mesh) -> None:
    go_on = asyncio.Event()

    async def wait(call: Call, request: InferenceServiceGenerateRequest) -> None:
        await call.write(node_status_chunk() + WHOLE_CHUNKS[0] + WHOLE_CHUNKS[1])
        await go_on.wait()
        raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")

    everywhere(mesh, wait)
    leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
    go_on.set()
    assert_whole(await leader)
    answer = await follower
    assert_whole(answer)
    assert not answer.accounting.is_billed
    assert len(asked_to_go_on(mesh)) == 1


async def test_follower_with_fields_goes_on_when_its_leader_is_lost() -> None:
    over = asyncio.Event()
    async with run_router(append_interval_ms=10) as mesh:

        async def wait(call: Call, _: object) -> None:
            await call.write(node_status_chunk() + WHOLE_CHUNKS[0] + WHOLE_CHUNKS[1])
            await over.wait()

        everywhere(mesh, wait)
        leader = mesh.open(ask(model="grok-3"))
        await eventually(lambda: any(node.running for node in mesh.nodes.values()))
        follower = mesh.open(ask(model="grok-3"))
        chunks: list[bytes] = []
        while not any(frame.kind == FrameKind.FRAME_KIND_VALUE for frame in Chunk.FromString(b"".join(chunks)).frames):
            chunk = await follower.read()
            assert chunk is not None
            chunks.append(chunk)
        (generation,) = mesh.cache.generations.values()
        generation.state = "lost"
        generation.changed.set()
        while (chunk := await follower.read()) is not None:
            chunks.append(chunk)
        answer = Answer(chunks)
        assert_whole(answer)
        assert answer.accounting.is_billed
        assert answer.last_status.continuations[0].cause == "LEASE_LOST"
        # The leader has heard of a follower, so that its generation outlives its caller.
        over.set()
        await leader.cancel()
        await eventually(mesh.is_quiet)


@pytest.mark.parametrize("is_down", [False, True], ids=["changed", "down"])
async def test_follower_whose_passages_are_others_by_now_is_not_gone_on_with(is_down: bool) -> None:
    over = asyncio.Event()
    async with run_router(append_interval_ms=10) as mesh:

        async def wait(call: Call, _: object) -> None:
            await call.write(node_status_chunk() + WHOLE_CHUNKS[0] + WHOLE_CHUNKS[1])
            await over.wait()

        mesh.rag.collections["acme"] = {"docs": 3}
        everywhere(mesh, wait)
        leader = mesh.open(ask(model="grok-3"))
        await eventually(lambda: any(node.running for node in mesh.nodes.values()))
        follower = mesh.open(ask(model="grok-3", request_id="f"))
        kinds: set[FrameKind.ValueType] = set()
        while FrameKind.FRAME_KIND_VALUE not in kinds:
            chunk = await follower.read()
            assert chunk is not None
            kinds |= {frame.kind for frame in Chunk.FromString(chunk).frames}
        mesh.rag.collections["acme"] = {"docs": 4}
        mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted") if is_down else None
        (generation,) = mesh.cache.generations.values()
        generation.state = "lost"
        generation.changed.set()
        answer = await read_all(follower)
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
        assert not asked_to_go_on(mesh)
        over.set()
        await leader.cancel()
        await eventually(mesh.is_quiet)
        assert not mesh.cache.settled["f"].output_tokens
