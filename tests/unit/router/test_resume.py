"""Answers that outlive their connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import GOOD, RESUME, Answer, Mesh, R, answering, ask, encode, read_all, run_router
from ssop.v1.content_pb2 import Tool
from ssop.v1.frame_pb2 import Chunk, Frame, FrameKind
from ssop.v1.router_pb2 import ResumeRequest
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_router.job import Intake
from ssop_router.resume import Recording


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running


class Gate:
    """A script that sends two chunks, waits, and sends the rest."""

    def __init__(self, text: str = GOOD) -> None:
        self.opened = asyncio.Event()
        self.chunks = encode(text)

    async def __call__(self, call: Call, _: Any) -> None:
        for chunk in self.chunks[:2]:
            await call.write(chunk)
        await self.opened.wait()
        for chunk in self.chunks[2:]:
            await call.write(chunk)


async def resume(mesh: Mesh, request_id: str, after_seq: int = 0, key: str | None = None) -> Answer:
    request = ResumeRequest(request_id=request_id, after_seq=after_seq)
    metadata = mesh.metadata(key)
    async with mesh.peer.open(RESUME, request.SerializeToString(), metadata=metadata) as stream:
        return await read_all(stream)


async def test_lost_connection_goes_on_where_it_was(mesh: Mesh) -> None:
    gate = mesh.nodes["lite-1"].script = Gate()
    async with mesh.open(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000)) as stream:
        first = await stream.read()
        assert first
    gate.opened.set()
    answer = await resume(mesh, "r", after_seq=2)
    assert [frame.seq for frame in answer.documents] == list(range(3, answer.documents[-1].seq + 1))
    assert answer.kinds[:2] == [FrameKind.FRAME_KIND_DECISION, FrameKind.FRAME_KIND_STATUS]
    assert answer.accounting.frames_sent == len(answer.documents)
    assert mesh.nodes["lite-1"].cancelled == 0


async def test_resume_from_the_start_is_the_whole_document(mesh: Mesh) -> None:
    whole = await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
    again = await resume(mesh, "r")
    assert again.documents == whole.documents
    assert again.trailers["x-ssop-request-id"] == "r"


@pytest.mark.parametrize("scope", ["lite", "ssop", "rag"])
async def test_resume_needs_the_scopes_that_the_answer_needed(mesh: Mesh, scope: str) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
    key = mesh.keys.of(scopes=[other for other in ("lite", "rag", "ssop") if other != scope])
    answer = await resume(mesh, "r", key=key)
    assert answer.error is not None
    assert answer.error.reason == R.ERROR_REASON_SCOPE_MISSING
    assert answer.error.metadata["scope"] == scope
    assert not answer.chunks


async def test_resume_needs_no_other_scope(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
    assert (await resume(mesh, "r", key=mesh.keys.of(scopes=["lite", "ssop"]))).error is None


async def test_resume_is_the_tenants_own(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
    answer = await resume(mesh, "r", key=mesh.keys.of("other"))
    assert answer.error is not None
    assert answer.error.reason == R.ERROR_REASON_REQUEST_UNKNOWN


async def test_window_that_is_over_ends_generation_and_memory(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = Gate()
    async with mesh.open(ask(model="grok-3-lite", request_id="r", resume_window_ms=40)) as stream:
        await stream.read()
    await eventually(lambda: mesh.nodes["lite-1"].cancelled == 1)
    answer = await resume(mesh, "r")
    assert answer.error is not None
    assert answer.error.reason == R.ERROR_REASON_REQUEST_UNKNOWN
    assert len(mesh.router.recordings) == 0
    assert mesh.router.recordings.size_bytes == 0


async def test_request_without_a_window_is_not_kept(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite", request_id="r"))
    answer = await resume(mesh, "r")
    assert answer.error is not None
    assert answer.error.reason == R.ERROR_REASON_REQUEST_UNKNOWN


async def test_new_connection_takes_over_from_one_that_is_not_known_to_be_dead(mesh: Mesh) -> None:
    gate = mesh.nodes["lite-1"].script = Gate()
    async with mesh.open(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000)) as stream:
        await stream.read()
        second = asyncio.ensure_future(resume(mesh, "r"))
        old = await read_all(stream)
        assert old.error is not None
        assert old.error.reason == R.ERROR_REASON_CANCELLED
        gate.opened.set()
        answer = await second
    assert answer.error is None
    assert answer.documents[-1].kind == FrameKind.FRAME_KIND_END


async def test_error_of_the_generation_comes_with_the_resume(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = answering('{"mood":"fine","score":11}')
    await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
    answer = await resume(mesh, "r")
    assert answer.error is not None
    assert answer.error.reason == R.ERROR_REASON_OUTPUT_INVALID


async def test_answer_larger_than_what_is_kept_still_reaches_the_client_that_reads() -> None:
    text = json.dumps({"mood": "x" * 20_000, "score": 1})
    async with run_router(resume_entry_bytes=4096) as mesh:
        mesh.nodes["lite-1"].script = answering(text)
        answer = await mesh.generate(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000))
        assert answer.error is None
        assert answer.documents[-1].kind == FrameKind.FRAME_KIND_END
        late = await resume(mesh, "r", after_seq=1)
        assert late.error is not None
        assert late.error.reason == R.ERROR_REASON_GENERATION_INTERRUPTED
        assert mesh.router.recordings.size_bytes <= 4096


async def test_number_of_recordings_is_bounded() -> None:
    async with run_router(resume_max_entries=2) as mesh:
        for index in range(5):
            answer = await mesh.generate(
                ask(f"t{index}", model="grok-3-lite", request_id=f"r{index}", resume_window_ms=5000)
            )
            assert answer.error is None
        assert len(mesh.router.recordings) == 2


async def test_slow_reader_of_a_recording_holds_the_generation_back(mesh: Mesh) -> None:
    written = 0
    chunks = encode(json.dumps({"mood": "x" * 300_000, "score": 1}), buffer_bytes=1024)

    async def script(call: Call, _: Any) -> None:
        nonlocal written
        for chunk in chunks:
            await call.write(chunk)
            written += 1

    mesh.nodes["lite-1"].script = script
    async with mesh.open(ask(model="grok-3-lite", request_id="r", resume_window_ms=5000)) as stream:
        await stream.read()
        await asyncio.sleep(0.1)
        assert written < 100
        answer = await read_all(stream)
    assert answer.error is None


async def test_generation_that_a_drain_cuts_is_settled(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = Gate()
    call = mesh.open(ask(model="grok-3-lite", request_id="cut", resume_window_ms=60_000))
    await call.read()
    await mesh.router.background.finish(0.05)
    assert "cut" in mesh.cache.settled
    assert [commit.is_complete for commit in mesh.cache.commits] == [False]


async def test_calls_whose_beginning_is_gone_are_not_sent_again(mesh: Mesh) -> None:
    """Each document has numbers of its own, so that a later one begins with 1, too."""
    chunks = [
        Chunk(frames=[Frame(seq=1, kind=FrameKind.FRAME_KIND_HEADER, document=number)]).SerializeToString()
        for number in (1, 2)
    ]
    job = mesh.router.pipeline.accept(Intake(ask(), Principal("acme", "k", frozenset({"lite", "full", "ssop"})), 60))
    job.request.prompt.tools.append(Tool(name="look", parameters_schema="{}"))
    recording, reader = Recording(job, mesh.router.pipeline._recordings, limit_bytes=len(chunks[0])), object()
    recording.attach(reader, 0)
    for chunk in chunks:
        recording.put(chunk, 1)
        assert await recording.next(reader) == chunk
    with pytest.raises(MeshError) as caught:
        recording.attach(object(), 0)
    assert caught.value.reason == R.ERROR_REASON_GENERATION_INTERRUPTED
    mesh.router.pipeline.discard(job)
