"""The ring behind `ssop trace`: what it says of a request, to whom, and what it never holds."""

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import GOOD, Mesh, R, ScriptedNode, ask, failing, hanging, reason, run_router
from ssop.v1 import mesh_pb2
from ssop.v1.mesh_pb2 import Receipt
from ssop.v1.router_pb2 import GetTraceRequest, GetTraceResponse
from ssop_chassis.errors import MeshError
from ssop_codec import compile_schema
from ssop_router.core._relay import Sends
from ssop_router.core.timeline import MAX_FRAMES, Timeline
from ssop_router.traces import name_nodes

GET_TRACE = "/ssop.v1.RouterService/GetTrace"
DOCUMENT_KINDS = range(1, 16)


async def trace(mesh: Mesh, request_id: str, key: str | None = None) -> GetTraceResponse:
    request = GetTraceRequest(request_id=request_id).SerializeToString()
    return GetTraceResponse.FromString(
        await mesh.peer.unary(GET_TRACE, request, timeout_s=5, metadata=mesh.metadata(key))
    )


async def test_a_trace_tells_the_stages_in_order(mesh: Mesh) -> None:
    await mesh.generate(ask(request_id="one"))
    found = await trace(mesh, "one")
    assert [mark.name for mark in found.marks if mark.name != "retrieved"] == [
        "decided",
        "admitted",
        "attempt",
        "first_field",
        "ended",
    ]
    assert [mark.at_us for mark in found.marks] == sorted(mark.at_us for mark in found.marks)
    assert (found.outcome, found.is_running) == ("OK", False)


async def test_a_trace_has_the_heads_of_the_frames_that_the_client_got(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(request_id="one"))
    found = await trace(mesh, "one")
    frames = [frame for chunk in found.chunks for frame in chunk.frames]
    assert [(frame.kind, frame.seq, frame.node) for frame in frames] == [
        (frame.kind, frame.seq, frame.node) for frame in answer.frames
    ]
    assert [chunk.size_bytes for chunk in found.chunks] == [len(chunk) for chunk in answer.chunks]
    assert found.frames_sent == sum(kind in DOCUMENT_KINDS for kind in answer.kinds)


async def test_a_failed_attempt_names_its_node_and_reason() -> None:
    nodes = {name: ScriptedNode(name, [mesh_pb2.TIER_FULL]) for name in ("a", "b")}
    async with run_router(nodes, has_rag=False) as mesh:
        nodes["a"].script, nodes["b"].script = failing(), failing()
        await mesh.generate(ask(request_id="one", policy="full"))
        found = await trace(mesh, "one")
    marks = [(mark.name, mark.detail) for mark in found.marks if mark.name.startswith("attempt")]
    assert sorted(marks[0::2]) == [("attempt", "a"), ("attempt", "b")]
    assert {name for name, _ in marks[1::2]} == {"attempt_failed"}
    assert found.outcome == "NO_BACKEND"


async def test_a_running_request_can_be_traced(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        node.script = hanging()
    async with mesh.open(ask(request_id="one")):
        await eventually(lambda: any(node.running for node in mesh.nodes.values()))
        found = await trace(mesh, "one")
    assert found.is_running
    assert not found.outcome


async def test_another_tenant_gets_no_trace(mesh: Mesh) -> None:
    await mesh.generate(ask(request_id="one"))
    with pytest.raises(MeshError) as caught:
        await trace(mesh, "one", mesh.keys.of("evil", ("lite", "full", "admin")))
    assert caught.value.reason == R.ERROR_REASON_REQUEST_UNKNOWN


async def test_a_trace_holds_nothing_that_was_asked_or_answered(mesh: Mesh) -> None:
    await mesh.generate(ask("canary-of-the-question", request_id="one"))
    data = (await trace(mesh, "one")).SerializeToString()
    assert b"canary" not in data
    assert all(value.encode() not in data for value in ("good", "sunny") if value in GOOD)


async def test_an_ended_request_leaves_no_prompt_in_memory(mesh: Mesh) -> None:
    await mesh.generate(ask("canary-of-the-question", request_id="one"))
    (entry,) = mesh.router.pipeline._reports.traces._entries.values()
    assert entry.job is None


async def test_request_that_finds_no_room_for_its_recording_has_ended() -> None:
    async with run_router(resume_max_entries=1) as mesh:
        mesh.nodes["lite-1"].script = hanging(0)
        running = mesh.open(ask(model="grok-3-lite", request_id="one", resume_window_ms=5000))
        await eventually(lambda: mesh.nodes["lite-1"].running > 0)
        answer = await mesh.generate(ask(model="grok-3-lite", request_id="two", resume_window_ms=5000))
        assert reason(answer) == R.ERROR_REASON_OVERLOADED
        assert (await trace(mesh, "two")).outcome == "OVERLOADED"
        assert mesh.router.pipeline._reports.traces._entries["acme", "two"].job is None
        await running.cancel()


async def test_the_ring_forgets_the_oldest() -> None:
    async with run_router(trace_requests=2) as mesh:
        for name in ("one", "two", "three"):
            await mesh.generate(ask(request_id=name))
        assert (await trace(mesh, "three")).outcome == "OK"
        with pytest.raises(MeshError):
            await trace(mesh, "one")


async def test_receipts_show_in_the_trace(mesh: Mesh) -> None:
    await mesh.generate(ask(request_id="one"))
    await mesh.generate(ask(receipts=[Receipt(request_id="one", frames_received=4, frames_verified=3)]))
    found = await trace(mesh, "one")
    assert (found.frames_received, found.frames_verified) == (4, 3)


def test_a_long_answer_keeps_its_beginning_and_counts_the_rest() -> None:
    sends = Sends(MAX_FRAMES)
    for number in range(MAX_FRAMES + 20):
        sends.note(number, 10, 1, b"")
    timeline = Timeline(sends, 0.0)
    assert len(timeline.sent) == MAX_FRAMES
    assert timeline.left_out == 20


def test_what_follows_a_chunk_that_is_left_out_is_left_out_too() -> None:
    sends = Sends(4)
    for count in (3, 3, 1):
        sends.note(0, 10, count, b"")
    timeline = Timeline(sends, 0.0)
    assert (len(timeline.sent), timeline.left_out) == (1, 2)


def test_of_very_many_marks_the_last_is_kept() -> None:
    timeline = Timeline(Sends(), 0.0)
    for number in range(1_000):
        timeline.mark(number, "attempt")
    timeline.mark(1_000, "ended")
    assert len(timeline.marks) == 64
    assert timeline.marks[-1].name == "ended"


def test_pointers_name_items_maps_and_odd_keys() -> None:
    schema = compile_schema(
        '{"type":"object","properties":{"a/b":{"type":"array","items":{"type":"string"}},'
        '"m":{"type":"object","additionalProperties":{"type":"integer"}}}}'
    )
    assert set(name_nodes(schema.nodes)) == {"", "/a~1b", "/a~1b/*", "/m", "/m/*"}
