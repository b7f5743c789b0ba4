"""Answers that were cut after fields had been sent: who goes on, what callers see, and where nobody can."""

import asyncio

import pytest

from helpers.as_written import both_ways
from helpers.cascades import LITE_ANSWER, cascade, prepare
from helpers.continuations import WHOLE, WHOLE_CHUNKS, asked_to_go_on, assert_whole, everywhere, first_try
from helpers.eventually import eventually
from helpers.scripted_mesh import (
    RESUME,
    Mesh,
    R,
    ScriptedNode,
    answering,
    ask,
    default_nodes,
    encode,
    failing,
    going_on,
    judged,
    node_status_chunk,
    read_all,
    reason,
    run_router,
)
from helpers.session_client import open_session
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import Chunk, Frame, IncompleteReason
from ssop.v1.inference_pb2 import InferenceServiceGenerateRequest
from ssop.v1.router_pb2 import ResumeRequest
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_codec import Decoder
from ssop_router import generation

FULL = ask(model="grok-3", policy="no_cache")


@pytest.fixture(autouse=True, params=both_ways("ssop_router.attempt"))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts as they are compiled, and as their source runs."""
    for one in ("Attempt", "ContinuedAttempt"):
        monkeypatch.setattr(generation, one, getattr(request.param, one))


async def test_another_node_of_the_tier_goes_on(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    answer = await mesh.generate(FULL)
    assert_whole(answer)
    ((name, request),) = asked_to_go_on(mesh)
    assert name.startswith("full")
    assert list(Chunk.FromString(request.continue_from.chunk).frames) == WHOLE[:2]
    assert request.continue_from.next_seq == 3


async def test_status_and_accounting_say_that_two_nodes_worked(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    answer = await mesh.generate(FULL)
    ((name, _),) = asked_to_go_on(mesh)
    assert answer.last_status.state == mesh_pb2.DELIVERY_STATE_OK
    assert list(answer.last_status.continuations) == [
        mesh_pb2.Continuation(
            first_seq=3, node=name, model=f"{name}-model", tier=mesh_pb2.TIER_FULL, cause="BACKEND_FAILED"
        )
    ]
    assert not answer.status.continuations
    assert answer.accounting.continuations == answer.accounting.failed_attempts == 1
    assert mesh.metric("ssop_router_continuations_total", outcome="taken") == 1


@pytest.mark.parametrize(
    "incomplete_reason",
    [IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED, IncompleteReason.INCOMPLETE_REASON_CANCELLED],
    ids=["failed", "drained"],
)
async def test_end_of_a_node_that_failed_is_kept_back_and_gone_on_from(mesh: Mesh, incomplete_reason: int) -> None:
    cut = encode('{"mood":"fine",', incomplete_reason=incomplete_reason)

    async def script(call: Call, _: object) -> None:
        await call.write(node_status_chunk())
        for chunk in cut:
            await call.write(chunk)

    everywhere(mesh, script)
    assert_whole(await mesh.generate(FULL))


async def test_end_of_a_node_that_failed_is_kept_back_in_the_chunk_of_the_first_field(mesh: Mesh) -> None:
    cut = encode('{"mood":"fine",', incomplete_reason=IncompleteReason.INCOMPLETE_REASON_BACKEND_FAILED)

    async def script(call: Call, _: object) -> None:
        await call.write(node_status_chunk() + b"".join(cut))

    everywhere(mesh, script)
    assert_whole(await mesh.generate(FULL))


async def test_nodes_go_on_one_after_the_other() -> None:
    nodes = {f"full-{number}": ScriptedNode(f"full-{number}", [mesh_pb2.TIER_FULL]) for number in range(4)}
    async with run_router(nodes) as mesh:
        everywhere(mesh, going_on(frames=2), going_on(frames=1))
        left = 2

        async def go_on(call: Call, request: InferenceServiceGenerateRequest) -> None:
            nonlocal left
            left -= 1
            await (going_on(frames=1) if left >= 0 else going_on())(call, request)

        everywhere(mesh, going_on(frames=2), go_on)
        answer = await mesh.generate(FULL)
        assert_whole(answer)
        assert [entry.first_seq for entry in answer.last_status.continuations] == [3, 4, 5]


async def test_lite_goes_on_where_no_full_node_can_and_the_answer_is_degraded(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2), failing())
    mesh.nodes["lite-1"].script = going_on()
    answer = await mesh.generate(ask(model="grok-3"))
    assert_whole(answer)
    assert answer.status.degraded_level == 0
    assert answer.last_status.degraded_level == 2
    assert answer.last_status.degraded_reason == mesh_pb2.DEGRADED_REASON_NODES_FAILED
    assert answer.trailers["x-ssop-status"] == "DEGRADED"
    assert not mesh.cache.stored


async def test_refused_level_is_not_gone_on_at(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2), failing())
    mesh.nodes["lite-1"].script = going_on()
    answer = await mesh.generate(ask(model="grok-3", max_degraded_level=0))
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert answer.error is not None
    assert answer.error.metadata == {
        "last_seq": "2",
        "cause": "BACKEND_FAILED",
        "not_continued": "DEGRADED_REFUSED",
    }
    assert answer.documents == WHOLE[:2]


async def test_what_no_node_can_go_on_with_is_named(mesh: Mesh) -> None:
    async def refuse(_: Call, __: object) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "no", metadata={"feature": "continue_from", "detail": "a union"})

    everywhere(mesh, going_on(frames=2), refuse)
    answer = await mesh.generate(FULL)
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert answer.error is not None
    assert answer.error.metadata["not_continued"] == "a union"
    assert mesh.metric("ssop_router_continuations_total", outcome="impossible") == 1


async def test_node_that_begins_anew_is_not_believed(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2), answering('{"mood":"other","score":4}'))
    answer = await mesh.generate(FULL)
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert answer.documents == WHOLE[:2]


async def test_header_that_comes_again_under_a_later_number_is_not_believed(mesh: Mesh) -> None:
    async def begin_anew(call: Call, request: InferenceServiceGenerateRequest) -> None:
        for number, frame in enumerate(WHOLE, start=request.continue_from.next_seq):
            again = Frame.FromString(frame.SerializeToString())
            again.seq = number
            await call.write(Chunk(frames=[again]).SerializeToString(deterministic=True))

    everywhere(mesh, going_on(frames=2), begin_anew)
    answer = await mesh.generate(FULL)
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert answer.documents == WHOLE[:2]


async def test_beginning_that_is_too_large_is_not_gone_on_from() -> None:
    async with run_router(continue_max_bytes=40) as mesh:
        everywhere(mesh, going_on(frames=2))
        answer = await mesh.generate(FULL)
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
        assert answer.error is not None
        assert answer.error.metadata["last_seq"] == "2"
        assert not asked_to_go_on(mesh)


async def test_node_that_was_started_again_goes_on_with_what_it_had_begun() -> None:
    node = ScriptedNode("full-1", [mesh_pb2.TIER_FULL])

    async def die(call: Call, request: InferenceServiceGenerateRequest) -> None:
        node.status.started_at_ms += 1
        await going_on(frames=2)(call, request)

    async with run_router({"full-1": node}, continue_wait_ms=4_000) as mesh:
        everywhere(mesh, die)
        answer = await mesh.generate(FULL)
        assert_whole(answer)
        assert answer.accounting.failed_attempts == 1


async def test_request_that_kills_every_node_ends_with_its_attempts() -> None:
    node = ScriptedNode("full-1", [mesh_pb2.TIER_FULL])

    async def die(call: Call, request: InferenceServiceGenerateRequest) -> None:
        node.status.started_at_ms += 1
        await going_on(frames=2 if not request.HasField("continue_from") else 0)(call, request)

    async with run_router({"full-1": node}, continue_wait_ms=4_000, max_attempts=3) as mesh:
        everywhere(mesh, die, die)
        answer = await mesh.generate(FULL)
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
        assert len(node.requests) == 3


async def test_node_that_is_full_is_waited_for_and_is_no_attempt() -> None:
    refusals = 7

    async def refuse(call: Call, request: InferenceServiceGenerateRequest) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise MeshError(R.ERROR_REASON_OVERLOADED, "scripted", retry_after_ms=20)
        await going_on()(call, request)

    async with run_router(continue_wait_ms=10_000, max_attempts=3) as mesh:
        everywhere(mesh, going_on(frames=2), refuse)
        answer = await mesh.generate(ask(model="grok-3", policy="no_cache", max_degraded_level=0))
        assert_whole(answer)
        assert answer.accounting.failed_attempts == 1


async def test_no_node_is_waited_for_where_one_has_said_that_none_can() -> None:
    async def refuse(_: Call, __: object) -> None:
        raise MeshError(R.ERROR_REASON_UNSUPPORTED, "no", metadata={"detail": "a union"})

    async with run_router(continue_wait_ms=600_000) as mesh:
        everywhere(mesh, going_on(frames=2), refuse)
        answer = await mesh.generate(FULL)
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED


async def test_no_node_is_waited_for_where_all_are_there_and_have_failed() -> None:
    async with run_router(continue_wait_ms=600_000) as mesh:
        everywhere(mesh, going_on(frames=2), going_on(frames=0))
        answer = await mesh.generate(FULL)
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED


async def test_wait_for_a_node_ends_with_the_deadline_and_is_not_charged() -> None:
    async with run_router(continue_wait_ms=600_000) as mesh:
        everywhere(mesh, going_on(frames=2), going_on(frames=0))
        # The lite node was not tried, and might come to serve the tier.
        request = ask(model="grok-3", request_id="r-1", policy="no_cache", max_degraded_level=0)
        request.timeout_ms = 1_500
        answer = await mesh.generate(request)
        assert reason(answer) == R.ERROR_REASON_DEADLINE_EXCEEDED
        assert answer.error is not None
        assert answer.error.metadata == {"stage": "continuation", "last_seq": "2"}
        await eventually(lambda: "r-1" in mesh.cache.settled)
        assert mesh.cache.settled["r-1"] == mesh_pb2.Usage()


async def test_caller_that_left_is_not_gone_on_for(mesh: Mesh) -> None:
    parked = asyncio.Event()

    async def wait(call: Call, _: object) -> None:
        await call.write(WHOLE_CHUNKS[0] + WHOLE_CHUNKS[1])
        parked.set()
        await asyncio.Event().wait()

    everywhere(mesh, wait)
    stream = mesh.open(FULL)
    await parked.wait()
    await stream.cancel()
    await eventually(mesh.is_quiet)
    assert not asked_to_go_on(mesh)


async def test_usage_of_the_last_node_is_what_is_charged_once(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    answer = await mesh.generate(ask(model="grok-3", request_id="r-1"))
    await eventually(lambda: "r-1" in mesh.cache.settled)
    assert mesh.cache.settled["r-1"] == answer.accounting.usage == WHOLE[-1].end.usage
    assert not mesh.cache.counted["r-1"].is_failed


async def test_answer_of_two_nodes_of_its_tier_is_stored_whole(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    assert_whole(await mesh.generate(ask(model="grok-3")))
    hit = await mesh.generate(ask(model="grok-3"))
    assert hit.decision.cache_reason == mesh_pb2.CACHE_REASON_HIT
    assert_whole(hit)


async def test_answer_on_a_session_is_gone_on_with(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    async with open_session(mesh, policy="full,no_cache") as client:
        await client.begin("a")
        await client.until_finished("a")
    assert client.finished["a"] is None
    assert [frame for frame in client.frames["a"] if frame.seq] == WHOLE


async def test_client_resumes_an_answer_that_two_nodes_made(mesh: Mesh) -> None:
    everywhere(mesh, going_on(frames=2))
    async with mesh.open(ask(model="grok-3", request_id="r", resume_window_ms=5_000)) as stream:
        assert await stream.read()
    request = ResumeRequest(request_id="r", after_seq=0)
    async with mesh.peer.open(RESUME, request.SerializeToString(), metadata=mesh.metadata()) as stream:
        answer = await read_all(stream)
    assert_whole(answer)
    assert len(answer.last_status.continuations) == 1
    assert sum(len(node.requests) for node in mesh.nodes.values()) == 2


async def test_lite_answer_that_a_cascade_kept_is_gone_on_with_in_its_tier() -> None:
    nodes = {**default_nodes(), "lite-2": ScriptedNode("lite-2", [mesh_pb2.TIER_LITE])}
    async with run_router(nodes) as mesh:
        prepare(mesh, judged(0.9, text=LITE_ANSWER), answering())
        whole = judged(0.9, text=LITE_ANSWER)

        async def cut(call: Call, request: InferenceServiceGenerateRequest) -> None:
            class Cutting:
                def __init__(self) -> None:
                    self.left = 5

                async def write(self, chunk: bytes) -> None:
                    self.left -= 1
                    if self.left < 0:
                        raise MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
                    await call.write(chunk)

            await whole(Cutting(), request)  # type: ignore[arg-type]

        for name in ("lite-1", "lite-2"):
            nodes[name].script = first_try(cut, going_on(LITE_ANSWER))
        answer = await mesh.generate(cascade())
        assert answer.error is None
        decoder = Decoder()
        decoder.feed(b"".join(answer.chunks))
        assert decoder.result["mood"] == "lite"
        assert answer.last_status.degraded_level == 0
        assert [entry.tier for entry in answer.last_status.continuations] == [mesh_pb2.TIER_LITE]


@pytest.mark.parametrize("frame", WHOLE[1:-1], ids=lambda frame: f"seq {frame.seq}")
async def test_cut_after_any_frame_is_whole_in_the_end(mesh: Mesh, frame: Frame) -> None:
    everywhere(mesh, going_on(frames=frame.seq))
    assert_whole(await mesh.generate(FULL))
