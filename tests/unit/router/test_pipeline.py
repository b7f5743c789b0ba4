"""The life of a request, with scripted nodes, cache and retrieval on the in-memory transport."""

import asyncio
import json
from collections.abc import AsyncIterator

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
    failing,
    hanging,
    node_status_chunk,
    read_all,
    run_router,
)
from ssop.v1 import inference_pb2, mesh_pb2
from ssop.v1.content_pb2 import Sampling, Tool
from ssop.v1.frame_pb2 import Chunk, FrameKind, Verdict
from ssop.v1.mesh_pb2 import CacheReason, NodeReason, Receipt, RetrievalReason, TierReason
from ssop.v1.router_pb2 import CacheOptions, GenerateRequest, RetrievalOptions
from ssop_chassis.call import Call
from ssop_chassis.errors import MeshError
from ssop_codec import Decoder, Encoder, compile_schema, text_schema


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router() as running:
        yield running


def reason(answer: Answer) -> int:
    assert answer.error is not None
    return answer.error.reason


def used(mesh: Mesh) -> list[str]:
    return [name for name, node in mesh.nodes.items() for _ in node.requests]


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


async def test_inner_calls_carry_principal_request_id_and_a_shorter_deadline(mesh: Mesh) -> None:
    await mesh.generate(ask(request_id="r-1", model="grok-3-lite"), timeout_s=2)
    node = mesh.nodes["lite-1"]
    assert node.principals[0].tenant == "acme"
    assert node.metadata[0]["x-ssop-request-id"] == "r-1"
    assert node.remaining_s < 2 - 0.015


async def test_node_that_fails_before_the_first_field_is_not_seen(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    first = await mesh.generate(ask(model="grok-3", max_degraded_level=0))
    assert reason(first) == R.ERROR_REASON_DEGRADED_REFUSED
    mesh.nodes["full-2"].script = answering()
    for _ in range(4):
        answer = await mesh.generate(ask(model="grok-3", policy="no_cache"))
        assert answer.error is None
        assert answer.decision.node == "full-2"
        assert answer.status.state == mesh_pb2.DELIVERY_STATE_OK


async def test_failover_counts_the_failed_attempt(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = failing(after=0)
    answers = [await mesh.generate(ask(model="grok-3", policy="no_cache")) for _ in range(6)]
    failed_over = [a for a in answers if a.accounting.failed_attempts]
    assert failed_over
    assert all(a.decision.node_reason == NodeReason.NODE_REASON_FAILOVER for a in failed_over)


async def test_backup_tier_is_degraded_and_says_so_three_times(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    answer = await mesh.generate(ask(model="grok-3"))
    assert answer.decision.node == "lite-1"
    assert answer.status.degraded_level == 2
    assert answer.status.fallback_used
    assert answer.status.degraded_reason == mesh_pb2.DEGRADED_REASON_NODES_FAILED
    assert answer.trailers["x-ssop-status"] == "DEGRADED"
    assert answer.trailers["x-ssop-degraded-level"] == "2"
    assert mesh.metric("ssop_router_degraded_total", level="2") == 1


async def test_degraded_answer_is_not_stored(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    await mesh.generate(ask(model="grok-3"))
    assert not mesh.cache.stored
    assert not mesh.cache.commits[0].is_complete


async def test_backup_needs_the_scope_lite(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    answer = await mesh.generate(ask(model="grok-3"), key=mesh.keys.of(scopes=["full", "ssop"]))
    assert reason(answer) == R.ERROR_REASON_NO_BACKEND
    assert answer.error is not None
    assert answer.error.retry_after_ms


async def test_failure_after_the_first_field_names_the_last_frame(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = failing(after=2)
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
    assert answer.error is not None
    assert answer.error.metadata["last_seq"] == str(answer.documents[-1].seq)


async def test_interrupted_generation_is_not_charged(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = failing(after=2)
    await mesh.generate(ask(model="grok-3-lite", request_id="r-1"))
    await eventually(lambda: "r-1" in mesh.cache.settled)
    assert mesh.cache.settled["r-1"] == mesh_pb2.Usage()


async def test_node_that_hangs_fails_over() -> None:
    async with run_router(first_field_timeout_ms=500) as mesh:
        mesh.nodes["full-1"].script = hanging()
        for _ in range(2):
            answer = await mesh.generate(ask(model="grok-3", policy="no_cache"))
            assert answer.error is None
            assert answer.decision.node == "full-2"
        await eventually(lambda: mesh.nodes["full-1"].running == 0)


async def test_node_that_hangs_after_the_first_field_meets_the_deadline(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging(after=2)
    answer = await mesh.generate(ask(model="grok-3-lite"), timeout_s=2)
    assert reason(answer) == R.ERROR_REASON_DEADLINE_EXCEEDED
    assert answer.error is not None
    assert answer.error.metadata["last_seq"] == str(answer.documents[-1].seq)
    await eventually(lambda: mesh.nodes["lite-1"].running == 0)


async def test_request_timeout_shortens_the_deadline(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging()
    answer = await mesh.generate(ask(model="grok-3-lite", timeout_ms=1000))
    assert reason(answer) == R.ERROR_REASON_DEADLINE_EXCEEDED
    assert answer.error is not None
    assert answer.error.metadata["stage"] == "first_field"


async def test_node_that_leaves_a_frame_out_is_a_failure(mesh: Mesh) -> None:
    chunks = encode(GOOD)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks[:2] + chunks[3:]:
            await call.write(chunk)

    mesh.nodes["lite-1"].script = script
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED


async def test_node_that_ends_without_an_end_is_a_failure(mesh: Mesh) -> None:
    async def script(call: Call, _: object) -> None:
        await call.write(node_status_chunk())

    mesh.nodes["lite-1"].script = script
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert reason(answer) == R.ERROR_REASON_NO_BACKEND


async def test_full_nodes_are_said_to_be_full(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = failing(R.ERROR_REASON_OVERLOADED)
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert reason(answer) == R.ERROR_REASON_OVERLOADED
    assert answer.error is not None
    assert answer.error.retry_after_ms


async def test_node_that_sends_garbage_is_a_failure(mesh: Mesh) -> None:
    async def script(call: Call, _: object) -> None:
        await call.write(b"\xff\xff\xff")

    mesh.nodes["lite-1"].script = script
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert reason(answer) == R.ERROR_REASON_NO_BACKEND


async def test_node_that_gives_up_before_a_field_is_not_seen(mesh: Mesh) -> None:
    chunks = encode("", incomplete_reason=5)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)

    mesh.nodes["full-1"].script = script
    answers = [await mesh.generate(ask(model="grok-3", policy="no_cache")) for _ in range(6)]
    assert all(answer.decision.node == "full-2" for answer in answers)
    assert any(answer.accounting.failed_attempts for answer in answers)


async def test_what_a_node_sends_after_the_end_is_dropped(mesh: Mesh) -> None:
    async def script(call: Call, _: object) -> None:
        for chunk in encode(GOOD):
            await call.write(chunk)
        await call.write(encode(GOOD)[0])

    mesh.nodes["lite-1"].script = script
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.error is None
    assert answer.kinds[-2:] == [FrameKind.FRAME_KIND_END, FrameKind.FRAME_KIND_ACCOUNTING]


async def test_small_replay_is_one_message(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    assert len((await mesh.generate(ask(model="grok-3-lite"))).chunks) == 1


async def test_documents_of_tool_calls_are_one_answer(mesh: Mesh) -> None:
    first = Encoder(text_schema())
    first.feed(b"Let me look.")
    first.finish(finish_reason=3)
    chunks = first.drain(flush=True)
    second = Encoder(compile_schema("{}"), document=1, first_seq=first.frames + 1, tool_name="look", tool_call_id="1")
    second.feed(b'{"q":"x"}')
    second.finish(finish_reason=3)
    chunks += second.drain(flush=True)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)

    for node in mesh.nodes.values():
        node.script = script
        node.status.models[0].capabilities.append("tools")
    await eventually(lambda: all("tools" in n.models[0].capabilities for n in mesh.router.nodes.snapshot().nodes))
    request = ask(schema=None)
    request.prompt.tools.append(Tool(name="look", parameters_schema="{}"))
    answer = await mesh.generate(request)
    assert answer.error is None
    assert [frame.document for frame in answer.documents if frame.kind == FrameKind.FRAME_KIND_END] == [0, 1]
    assert answer.kinds[-1] == FrameKind.FRAME_KIND_ACCOUNTING
    assert not mesh.cache.stored


async def test_what_a_node_says_of_the_request_itself_is_not_retried(mesh: Mesh) -> None:
    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing(R.ERROR_REASON_CONTEXT_EXCEEDED)
    answer = await mesh.generate(ask(model="grok-3"))
    assert reason(answer) == R.ERROR_REASON_CONTEXT_EXCEEDED
    assert len(used(mesh)) == 1


async def test_invalid_output_is_forwarded_and_then_an_error(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = answering('{"mood":"fine","score":11}')
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.documents[-1].end.verdict == Verdict.VERDICT_INVALID
    assert reason(answer) == R.ERROR_REASON_OUTPUT_INVALID
    assert answer.error is not None
    assert answer.error.metadata["pointer"] == "/score"
    assert answer.error.metadata["rule"] == "maximum"
    assert int(answer.error.metadata["offset_bytes"]) > 0
    assert not mesh.cache.stored


async def test_incomplete_output_ends_well_and_is_not_stored(mesh: Mesh) -> None:
    chunks = encode('{"mood":"fine"', incomplete_reason=1)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)

    mesh.nodes["lite-1"].script = script
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.error is None
    assert answer.documents[-1].end.verdict == Verdict.VERDICT_INCOMPLETE
    assert not mesh.cache.stored


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [(3, R.ERROR_REASON_DEADLINE_EXCEEDED), (5, R.ERROR_REASON_GENERATION_INTERRUPTED)],
)
async def test_output_that_was_cut_by_a_fault_is_an_error(mesh: Mesh, incomplete: int, expected: int) -> None:
    chunks = encode('{"mood":"fine"', incomplete_reason=incomplete)

    async def script(call: Call, _: object) -> None:
        for chunk in chunks:
            await call.write(chunk)

    mesh.nodes["lite-1"].script = script
    assert reason(await mesh.generate(ask(model="grok-3-lite"))) == expected


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
        streams = [mesh.open(ask(f"Translate {batch} {i}")) for i in range(50)]
        await asyncio.gather(*(stream.read() for stream in streams))
        await asyncio.gather(*(stream.cancel() for stream in streams))
    await eventually(mesh.is_quiet)
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
    assert sum(node.cancelled for node in mesh.nodes.values()) == 500


async def test_stored_answer_is_replayed_byte_for_byte(mesh: Mesh) -> None:
    first = await mesh.generate(ask(model="grok-3-lite"))
    second = await mesh.generate(ask(model="grok-3-lite"))
    assert second.documents == first.documents
    assert second.decision.cache_reason == CacheReason.CACHE_REASON_HIT
    assert second.status.is_cached
    assert second.status.age_ms == 1234
    assert not second.accounting.is_billed
    assert used(mesh) == ["lite-1"]


async def test_replay_is_charged_nothing(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    await mesh.generate(ask(model="grok-3-lite", request_id="second"))
    await eventually(lambda: "second" in mesh.cache.settled)
    assert mesh.cache.settled["second"] == mesh_pb2.Usage()


async def test_answer_is_never_another_tenants(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    other = await mesh.generate(ask(model="grok-3-lite"), key=mesh.keys.of("other"))
    assert other.decision.cache_reason == CacheReason.CACHE_REASON_MISS


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(policy="no_cache"), CacheReason.CACHE_REASON_POLICY_OFF),
        (ask(prompt=ask().prompt), CacheReason.CACHE_REASON_MISS),
    ],
)
async def test_cache_reason(mesh: Mesh, request_: GenerateRequest, expected: int) -> None:
    assert (await mesh.generate(request_)).decision.cache_reason == expected


async def test_sampled_answers_are_cached_only_when_asked_for(mesh: Mesh) -> None:
    request = ask()
    request.prompt.sampling.CopyFrom(Sampling(temperature=0.7))
    assert (await mesh.generate(request)).decision.cache_reason == CacheReason.CACHE_REASON_TEMPERATURE
    assert not mesh.cache.stored
    request.cache.CopyFrom(CacheOptions(allow_sampled=True))
    assert (await mesh.generate(request)).decision.cache_reason == CacheReason.CACHE_REASON_MISS
    assert mesh.cache.stored


async def test_cache_only_never_generates(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(policy="cache_only"))
    assert reason(answer) == R.ERROR_REASON_CACHE_MISS
    assert used(mesh) == []


async def test_cache_that_is_down_is_done_without(mesh: Mesh) -> None:
    mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
    answer = await mesh.generate()
    assert answer.error is None
    assert answer.status.unavailable == ["cache"]
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_UNAVAILABLE
    assert mesh.metric("ssop_router_unavailable_total", dependency="cache") == 1


async def test_cache_that_is_frozen_costs_little_and_is_left_alone(mesh: Mesh) -> None:
    mesh.cache.is_frozen = True
    answers = [await mesh.generate() for _ in range(6)]
    assert all(answer.status.unavailable == ["cache"] for answer in answers)
    assert all(answer.accounting.admission_ms < 500 for answer in answers)
    assert answers[-1].accounting.admission_ms < 50


async def test_limits_are_refusals(mesh: Mesh) -> None:
    mesh.cache.error = MeshError(R.ERROR_REASON_RATE_LIMITED, "scripted", retry_after_ms=700)
    answer = await mesh.generate()
    assert reason(answer) == R.ERROR_REASON_RATE_LIMITED
    assert answer.error is not None
    assert answer.error.retry_after_ms == 700
    assert used(mesh) == []


async def test_same_question_at_the_same_time_is_generated_once() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        chunks = encode(GOOD)

        async def script(call: Call, _: object) -> None:
            await call.write(chunks[0])
            await call.write(chunks[1])
            await go_on.wait()
            for chunk in chunks[2:]:
                await call.write(chunk)

        mesh.nodes["lite-1"].script = script
        leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: mesh.nodes["lite-1"].running == 1)
        followers = [asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite"))) for _ in range(5)]
        await eventually(lambda: any(g.followers == 5 for g in mesh.cache.generations.values()))
        go_on.set()
        first = await leader
        for follower in await asyncio.gather(*followers):
            assert follower.documents == first.documents
            assert follower.decision.cache_reason == CacheReason.CACHE_REASON_FOLLOWER
            assert not follower.accounting.is_billed
        assert used(mesh) == ["lite-1"]


async def test_leader_that_goes_away_generates_on_for_its_followers() -> None:
    async with run_router(append_interval_ms=5) as mesh:
        go_on = asyncio.Event()
        chunks = encode(GOOD)

        async def script(call: Call, _: object) -> None:
            await call.write(chunks[0])
            await call.write(chunks[1])
            await go_on.wait()
            for chunk in chunks[2:]:
                await call.write(chunk)

        mesh.nodes["lite-1"].script = script
        leader = mesh.open(ask(model="grok-3-lite"))
        await leader.read()
        follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
        await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
        appends = mesh.cache.appends
        await eventually(
            lambda: (
                mesh.cache.appends > appends or any(job.has_followers for job in mesh.router.pipeline._running.values())
            )
        )
        await eventually(lambda: any(job.has_followers for job in mesh.router.pipeline._running.values()))
        await leader.cancel()
        go_on.set()
        answer = await follower
        assert answer.error is None
        assert used(mesh) == ["lite-1"]
        assert mesh.nodes["lite-1"].cancelled == 0


async def test_follower_takes_over_when_the_leader_fails_before_a_field(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].script = hanging()
    leader = mesh.open(ask(model="grok-3-lite"))
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    follower = asyncio.ensure_future(mesh.generate(ask(model="grok-3-lite")))
    await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
    mesh.nodes["lite-1"].script = answering()
    await leader.cancel()
    answer = await follower
    assert answer.error is None
    assert answer.decision.cache_reason == CacheReason.CACHE_REASON_MISS
    assert mesh.cache.stored


async def test_degraded_generation_has_no_followers(mesh: Mesh) -> None:
    go_on = asyncio.Event()

    async def script(call: Call, request: inference_pb2.InferenceServiceGenerateRequest) -> None:
        await go_on.wait()
        await answering()(call, request)

    mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = failing()
    mesh.nodes["lite-1"].script = script
    leader = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    await eventually(lambda: len(mesh.cache.commits) == 1)
    second = asyncio.ensure_future(mesh.generate(ask(model="grok-3")))
    await eventually(lambda: mesh.nodes["lite-1"].running == 2)
    go_on.set()
    assert (await leader).status.degraded_level == 2
    assert (await second).status.degraded_level == 2


async def test_passages_go_to_the_node_and_into_the_status(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_RETRIEVED
    assert [p.document_id for p in answer.status.passages] == ["d"]
    assert mesh.nodes["lite-1"].requests[0].passages[0].text == "a passage"
    assert answer.accounting.retrieval_wait_ms > 0


async def test_tenant_without_collections_retrieves_nothing(mesh: Mesh) -> None:
    answer = await mesh.generate()
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_NO_COLLECTION
    assert not mesh.rag.retrievals


async def test_new_index_version_is_another_answer() -> None:
    async with run_router(collections_ttl_ms=0) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        await mesh.generate(ask(model="grok-3-lite"))
        hit = await mesh.generate(ask(model="grok-3-lite"))
        mesh.rag.collections["acme"] = {"docs": 4}
        miss = await mesh.generate(ask(model="grok-3-lite"))
        assert hit.decision.cache_reason == CacheReason.CACHE_REASON_HIT
        assert miss.decision.cache_reason == CacheReason.CACHE_REASON_MISS


async def test_answer_from_other_versions_than_its_key_says_is_not_stored() -> None:
    async with run_router(collections_ttl_ms=60_000) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        await mesh.generate(ask(model="grok-3-lite", policy="no_cache"))
        mesh.rag.collections["acme"] = {"docs": 4}
        await mesh.generate(ask(model="grok-3-lite"))
        assert not mesh.cache.stored
        assert mesh.metric("ssop_router_answers_not_stored_total", reason="index_changed") == 1


async def test_retrieval_that_is_down_is_done_without_and_not_stored(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    mesh.rag.error = MeshError(R.ERROR_REASON_BACKEND_FAILED, "scripted")
    answer = await mesh.generate()
    assert answer.error is None
    assert answer.status.unavailable == ["rag"]
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_UNAVAILABLE
    assert not mesh.cache.stored


async def test_retrieval_that_is_frozen_is_waited_for_a_little() -> None:
    async with run_router(retrieval_timeout_ms=30) as mesh:
        mesh.rag.collections["acme"] = {"docs": 3}
        mesh.rag.is_frozen = True
        answers = [await mesh.generate(ask(f"t{index}")) for index in range(5)]
        assert all(answer.status.unavailable == ["rag"] for answer in answers)
        # An unbounded wait would last until the deadline of the call.
        assert answers[-1].accounting.total_ms < 10_000


async def test_unknown_collection_is_the_callers_error(mesh: Mesh) -> None:
    answer = await mesh.generate(ask(retrieval=RetrievalOptions(collections=["nowhere"])))
    assert reason(answer) == R.ERROR_REASON_COLLECTION_UNKNOWN


async def test_named_collection_needs_the_scope_rag(mesh: Mesh) -> None:
    key = mesh.keys.of(scopes=["lite", "full", "ssop"])
    answer = await mesh.generate(ask(retrieval=RetrievalOptions(collections=["docs"])), key=key)
    assert reason(answer) == R.ERROR_REASON_SCOPE_MISSING
    assert answer.error is not None
    assert answer.error.metadata["scope"] == "rag"


async def test_key_without_rag_is_served_without_passages(mesh: Mesh) -> None:
    mesh.rag.collections["acme"] = {"docs": 3}
    answer = await mesh.generate(key=mesh.keys.of(scopes=["lite", "full", "ssop"]))
    assert answer.decision.retrieval_reason == RetrievalReason.RETRIEVAL_REASON_SCOPE


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
