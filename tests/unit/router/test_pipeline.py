"""The life of a request: delivery, clients that go, and what is refused."""

import asyncio
import json

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import (
    GENERATE,
    GOOD,
    SCHEMA,
    Answer,
    Mesh,
    R,
    ScriptedNode,
    answering,
    ask,
    encode,
    hanging,
    read_all,
    reason,
    run_router,
    used,
)
from ssop.v1 import mesh_pb2
from ssop.v1.content_pb2 import Tool
from ssop.v1.frame_pb2 import Chunk, FrameKind, Verdict
from ssop.v1.mesh_pb2 import Receipt, TierReason
from ssop.v1.router_pb2 import GenerateRequest
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_codec import Decoder, Encoder, compile_schema, mesh_chunk, text_schema
from ssop_router import delivery


async def test_delivery_has_its_frames_in_order(mesh: Mesh) -> None:
    answer = await mesh.generate()
    kinds = answer.kinds
    assert answer.error is None
    assert kinds[:3] == [FrameKind.FRAME_KIND_DECISION, FrameKind.FRAME_KIND_STATUS, FrameKind.FRAME_KIND_HEADER]
    assert kinds[-2:] == [FrameKind.FRAME_KIND_END, FrameKind.FRAME_KIND_ACCOUNTING]


async def test_document_decodes_to_what_the_node_generated(mesh: Mesh) -> None:
    answer = await mesh.generate()
    decoder = Decoder()
    for chunk in answer.chunks:
        decoder.feed(chunk)
    assert decoder.result == json.loads(GOOD)


async def test_document_frames_are_the_nodes_bytes(mesh: Mesh) -> None:
    answer = await mesh.generate()
    assert answer.documents == list(Chunk.FromString(b"".join(encode(GOOD))).frames)


async def test_status_of_the_node_is_merged_once(mesh: Mesh) -> None:
    answer = await mesh.generate()
    assert answer.kinds.count(FrameKind.FRAME_KIND_STATUS) == 1
    assert answer.status.constraint_mode == mesh_pb2.CONSTRAINT_MODE_FULL
    assert answer.status.engine_limits == ["maxLength=512 at /mood"]


@pytest.mark.parametrize(
    "kind",
    [
        FrameKind.FRAME_KIND_DECISION,
        FrameKind.FRAME_KIND_STATUS,
        FrameKind.FRAME_KIND_ACCOUNTING,
        FrameKind.FRAME_KIND_RECEIPT,
    ],
)
async def test_what_a_node_says_to_the_router_alone_is_no_message_to_the_client(
    mesh: Mesh, kind: FrameKind.ValueType
) -> None:
    chunks = encode(GOOD)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)
            for _ in range(10):
                await call.write(mesh_chunk(kind, b""))

    for node in mesh.nodes.values():
        node.script = script
    answer = await mesh.generate()
    assert answer.error is None
    assert all(answer.chunks)
    assert answer.documents == list(Chunk.FromString(b"".join(chunks)).frames)


async def test_long_status_of_a_node_goes_out_whole_and_is_not_remembered(mesh: Mesh) -> None:
    """A caller's schema makes it as long as it likes: one entry for each field, with the field's name."""
    limits = [f"maxLength=512 at /{number}-{'x' * 200}" for number in range(40)]
    status = mesh_pb2.DeliveryStatus(engine_limits=limits).SerializeToString()

    async def script(call: Call, _: object) -> None:
        for chunk in (mesh_chunk(FrameKind.FRAME_KIND_STATUS, status), *encode(GOOD)):
            await call.write(chunk)

    for node in mesh.nodes.values():
        node.script = script
    remembered = delivery._pack_plain_status.cache_info().misses
    answer = await mesh.generate()
    assert answer.status.engine_limits == limits
    assert delivery._pack_plain_status.cache_info().misses == remembered


async def test_accounting_counts_the_frames_that_were_sent(mesh: Mesh) -> None:
    answer = await mesh.generate()
    assert answer.accounting.frames_sent == len(answer.documents)
    assert answer.accounting.is_billed
    assert answer.accounting.usage.output_tokens == 3
    assert answer.accounting.first_field_ms > 0


async def test_trailers_say_ok_and_the_request_id(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(request_id="r-1"))
    assert answer.trailers == {
        "x-ssop-status": "OK",
        "x-ssop-degraded-level": "0",
        "x-ssop-request-id": "r-1",
    }


async def test_short_instruction_goes_to_lite(mesh: Mesh) -> None:
    answer = await mesh.generate(ask("Translate this: good morning"))
    assert answer.decision.tier_reason == TierReason.TIER_REASON_SHORT_INSTRUCTION
    assert used(mesh) == ["lite-1"]


async def test_requests_without_an_id_get_ids_of_their_own(mesh: Mesh) -> None:
    ids = [(await mesh.generate()).trailers["x-ssop-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(len(name) == 32 for name in ids)


async def test_inner_calls_carry_principal_request_id_and_a_shorter_deadline(mesh: Mesh) -> None:
    await mesh.generate(ask(request_id="r-1", model="grok-3-lite"), timeout_s=2)
    node = mesh.nodes["lite-1"]
    assert node.principals[0].tenant == "acme"
    assert node.metadata[0]["x-ssop-request-id"] == "r-1"
    assert node.remaining_s < 2 - 0.015


async def call_tools(mesh: Mesh, cut: int = 0) -> Answer:
    """An answer of a text and a call; its node leaves so many frames of the end out."""
    first = Encoder(text_schema())
    first.feed(b"Let me look.")
    first.finish(finish_reason=3)
    second = Encoder(compile_schema("{}"), document=1, tool_name="look", tool_call_id="1")
    second.feed(b'{"q":"x"}')
    second.finish(finish_reason=3)
    frames = Chunk.FromString(b"".join(first.drain(flush=True) + second.drain(flush=True))).frames

    async def script(call: Call, _: object) -> None:
        await call.write(Chunk(frames=frames[: len(frames) - cut]).SerializeToString(deterministic=True))

    for node in mesh.nodes.values():
        node.script = script
        node.status.models[0].capabilities.append("tools")
    await eventually(lambda: all("tools" in n.models[0].capabilities for n in mesh.router.nodes.snapshot().nodes))
    request = ask(schema=None, request_id="r-1")
    request.prompt.tools.append(Tool(name="look", parameters_schema="{}"))
    return await mesh.generate(request)


async def test_documents_of_tool_calls_are_one_answer(mesh: Mesh) -> None:
    answer = await call_tools(mesh)
    assert answer.error is None
    assert [frame.document for frame in answer.documents if frame.kind == FrameKind.FRAME_KIND_END] == [0, 1]
    assert answer.kinds[-1] == FrameKind.FRAME_KIND_ACCOUNTING
    assert not mesh.cache.stored


@pytest.mark.parametrize("cut", [1, 2])
async def test_an_answer_with_a_document_that_has_not_ended_is_none(mesh: Mesh, cut: int) -> None:
    answer = await call_tools(mesh, cut)
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert [frame.document for frame in answer.documents if frame.kind == FrameKind.FRAME_KIND_END] == [0]
    await eventually(lambda: "r-1" in mesh.cache.settled)
    assert mesh.cache.counted["r-1"].is_failed
    assert mesh.cache.settled["r-1"].output_tokens == 0


async def test_client_that_goes_away_cancels_the_node(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    async with mesh.open(ask(model="grok-3-lite", request_id="r-1")) as stream:
        await stream.read()
    await eventually(lambda: mesh.nodes["lite-1"].cancelled == 1)
    await eventually(mesh.is_quiet)
    assert mesh.cache.settled["r-1"].output_tokens > 0


async def test_client_that_does_not_read_stops_the_node(mesh: Mesh) -> None:
    written = 0
    chunks = encode(json.dumps({"mood": "x" * 60_000, "score": 1}), buffer_bytes=1024)

    async def script(call: Call, _: object) -> None:
        nonlocal written
        for chunk in chunks:
            await call.write(chunk)
            written += 1

    mesh.nodes["lite-1"].script = script
    async with mesh.open(ask(model="grok-3-lite")) as stream:
        await stream.read()
        await asyncio.sleep(0.1)
        assert written < 12
        answer = await read_all(stream)
    assert answer.error is None
    assert written == len(chunks)


async def test_five_hundred_cancelled_calls_leave_nothing_behind(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        node.script = hanging(after=2)
    before = len(asyncio.all_tasks())
    for batch in range(10):
        streams = [mesh.open(ask(f"Translate {batch} {i}"), timeout_s=60) for i in range(50)]
        await asyncio.gather(*(stream.read() for stream in streams))
        await asyncio.gather(*(stream.cancel() for stream in streams))
    await eventually(mesh.is_quiet)
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
    assert sum(node.cancelled for node in mesh.nodes.values()) == 500


async def test_schema_needs_the_scope_ssop(mesh: Mesh) -> None:
    answer = await mesh.generate(key=mesh.keys.of(scopes=["lite", "full"]))
    assert reason(answer) == R.ERROR_REASON_SCOPE_MISSING
    assert answer.error is not None
    assert answer.error.metadata["scope"] == "ssop"


async def test_plain_text_needs_no_schema(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = answering("hello there", schema=None)
    answer = await mesh.generate(ask(schema=None, model="grok-3-lite"), key=mesh.keys.of(scopes=["lite"]))
    assert answer.error is None
    assert answer.documents[-1].end.verdict == Verdict.VERDICT_OK


async def test_wrong_key(mesh: Mesh) -> None:
    answer = await mesh.generate(key="ssop_k9_nonsense")
    assert reason(answer) == R.ERROR_REASON_KEY_INVALID


async def test_no_key(mesh: Mesh) -> None:
    async with mesh.peer.open(GENERATE, ask().SerializeToString()) as stream:
        assert reason(await read_all(stream)) == R.ERROR_REASON_KEY_MISSING


async def test_inner_service_refuses_a_forged_principal(mesh: Mesh) -> None:
    node = mesh.router.nodes["lite-1"].peer
    with pytest.raises(MeshError) as caught:
        await node.unary(
            "/ssop.v1.InferenceService/CheckConstraint",
            b"",
            timeout_s=1,
            metadata={"x-ssop-principal-bin": b"\0" * 32 + b"\x0a\x04acme"},
        )
    assert caught.value.reason == R.ERROR_REASON_PRINCIPAL_INVALID


async def test_unknown_model(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(model="gpt-9"))
    assert reason(answer) == R.ERROR_REASON_MODEL_UNKNOWN


async def test_prompt_over_the_limit() -> None:
    async with run_router(max_prompt_bytes=1000) as mesh:
        answer = await mesh.generate(ask("x" * 2000))
        assert reason(answer) == R.ERROR_REASON_MESSAGE_TOO_LARGE
        assert answer.error is not None
        assert answer.error.metadata["limit_bytes"] == "1000"


async def test_remote_reference_is_refused_with_its_pointer(mesh: Mesh) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}
    for _ in range(2):
        answer = await mesh.generate(ask(schema=schema))
        assert reason(answer) == R.ERROR_REASON_SCHEMA_REFUSED
        assert answer.error is not None
        assert answer.error.metadata["pointer"] == "/properties/a/$ref"
    assert mesh.cache.calls == 0


async def test_schema_of_a_tool_is_checked(mesh: Mesh) -> None:
    request = ask()
    request.prompt.tools.append(Tool(name="t", parameters_schema="{"))
    assert reason(await mesh.generate(request)) == R.ERROR_REASON_SCHEMA_REFUSED


@pytest.mark.parametrize("policy", ["lite,full", "nonsense", "cache_only,no_cache"])
async def test_policy_that_makes_no_sense(mesh: Mesh, policy: str) -> None:
    assert reason(await mesh.generate(policy=policy)) == R.ERROR_REASON_POLICY_INVALID


async def test_policy_of_the_request_goes_before_that_of_the_metadata(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(policy="lite"), policy="full")
    assert answer.decision.policy == "lite"


async def test_more_requests_than_the_router_takes() -> None:
    async with run_router(max_in_flight=2) as mesh:
        for node in mesh.nodes.values():
            node.script = hanging(after=2)
        streams = [mesh.open(ask(f"Translate {i}")) for i in range(2)]
        await asyncio.gather(*(stream.read() for stream in streams))
        answer = await mesh.generate(ask("Translate 3"))
        assert reason(answer) == R.ERROR_REASON_OVERLOADED
        await asyncio.gather(*(stream.cancel() for stream in streams))
        await eventually(lambda: mesh.router.pipeline.in_flight == 0)


async def test_id_of_a_running_request_is_a_duplicate_for_its_tenant_only(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    async with mesh.open(ask(model="grok-3-lite", request_id="same")) as stream:
        await stream.read()
        again = await mesh.generate(ask("another", request_id="same"))
        other = await mesh.generate(ask(model="grok-3", request_id="same"), key=mesh.keys.of("other"))
    assert reason(again) == R.ERROR_REASON_REQUEST_DUPLICATE
    assert other.error is None


async def test_conversation_keeps_its_tier(mesh: Mesh) -> None:
    first = await mesh.generate(ask("Translate this", conversation_id="c"))
    second = await mesh.generate(ask("And what else is there?", conversation_id="c"))
    assert first.decision.tier == second.decision.tier == mesh_pb2.TIER_LITE
    assert second.decision.tier_reason == TierReason.TIER_REASON_CONVERSATION_PIN


async def test_receipts_of_earlier_requests_are_counted_once_and_never_above_what_was_sent(mesh: Mesh) -> None:
    first = await mesh.generate(ask(request_id="r-1"))
    sent = len(first.documents)
    receipt = Receipt(request_id="r-1", frames_received=sent + 5, frames_verified=sent - 1)
    for _ in range(2):
        await mesh.generate(ask(receipts=[receipt, Receipt(request_id="unknown", frames_received=9)]))
    assert mesh.metric("ssop_router_frames_received_total") == sent
    assert mesh.metric("ssop_router_frames_verified_total") == sent - 1


async def test_malformed_request_names_every_fault(mesh: Mesh) -> None:
    request = GenerateRequest(request_id="has space", resume_window_ms=600_001)
    answer = await mesh.generate(request)
    assert reason(answer) == R.ERROR_REASON_REQUEST_INVALID
    assert answer.error is not None
    assert {path for path, _ in answer.error.fields} == {"request_id", "resume_window_ms", "prompt.messages"}


async def test_frames_are_no_larger_than_the_request_takes(mesh: Mesh) -> None:
    text = json.dumps({"mood": "x" * 3000, "score": 1})
    mesh.nodes["lite-1"].script = answering(text)
    chunks = encode(text, buffer_bytes=256)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)

    mesh.nodes["lite-1"].script = script
    request = ask(model="grok-3-lite")
    request.prompt.stream_buffer_size = 256
    first, replay = await mesh.generate(request), await mesh.generate(request)
    for answer in (first, replay):
        assert all(len(chunk) <= 256 for chunk in answer.chunks)


async def test_node_whose_status_never_came_is_used_when_nothing_else_is_known() -> None:
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}
    async with run_router(nodes) as mesh:
        for node in mesh.router.nodes:
            node.seen_at_ms = None
            node.status = None
        mesh.router.nodes._snapshot = None
        nodes["full-1"].status.Clear()
        answer = await mesh.generate(ask(model="grok-3"))
        assert answer.error is None
        assert SCHEMA


@pytest.mark.parametrize(("incomplete_reason", "is_failed"), [(0, False), (1, False), (5, True)])
async def test_answer_that_reached_its_limit_is_counted_as_no_error(
    mesh: Mesh, incomplete_reason: int, is_failed: bool
) -> None:
    text = GOOD if not incomplete_reason else GOOD[:15]

    async def script(call: Call, _: object) -> None:
        for chunk in encode(text, incomplete_reason=incomplete_reason):
            await call.write(chunk)

    for node in mesh.nodes.values():
        node.script = script
    answer = await mesh.generate(ask(request_id="counted"))
    await eventually(lambda: "counted" in mesh.cache.counted)
    assert mesh.cache.counted["counted"].is_failed is is_failed
    assert (answer.error is not None) is is_failed
