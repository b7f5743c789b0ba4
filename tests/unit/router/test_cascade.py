"""Cascades through the whole router: what is kept, what escalates, what is seen of it, and what is freed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.cascades import FULL_ANSWER, FULL_USAGE, LITE_ANSWER, LITE_USAGE, cascade, document, prepare, read_on
from helpers.eventually import eventually
from helpers.scripted_mesh import (
    RESUME,
    Answer,
    Mesh,
    R,
    answering,
    ask,
    encode,
    failing,
    hanging,
    judged,
    read_all,
    run_router,
    used,
)
from ssop.v1 import mesh_pb2
from ssop.v1.content_pb2 import Sampling
from ssop.v1.frame_pb2 import Chunk, FrameKind, Verdict
from ssop.v1.mesh_pb2 import CacheReason, CascadeReason, TierReason
from ssop.v1.router_pb2 import ResumeRequest
from ssop_chassis.call import Call
from ssop_codec import mesh_chunk

C = CascadeReason


async def test_confident_lite_answer_is_kept(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9, text=LITE_ANSWER))
    answer = await mesh.generate(cascade())
    assert document(answer)["mood"] == "lite"
    assert used(mesh) == ["lite-1"]
    decision = answer.decision
    assert (decision.tier, decision.tier_reason) == (mesh_pb2.TIER_LITE, TierReason.TIER_REASON_CASCADE_LITE)
    assert decision.cascade_reason == C.CASCADE_REASON_KEPT_CONFIDENT
    assert decision.cascade_confidence == pytest.approx(0.9)
    assert not answer.accounting.HasField("discarded_usage")
    assert mesh.metric("ssop_router_cascades_total", outcome="kept", reason="CASCADE_REASON_KEPT_CONFIDENT") == 1


async def test_unsure_lite_answer_is_replaced_unseen(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9, 0.3, text=LITE_ANSWER))
    answer = await mesh.generate(cascade())
    assert answer.error is None
    assert document(answer)["mood"] == "full"
    # Header and numbering are those of the node that answers.
    assert [frame.seq for frame in answer.documents] == list(range(1, len(answer.documents) + 1))
    assert answer.kinds.count(FrameKind.FRAME_KIND_HEADER) == 1
    decision = answer.decision
    assert decision.node.startswith("full")
    assert (decision.tier, decision.tier_reason) == (mesh_pb2.TIER_FULL, TierReason.TIER_REASON_CASCADE)
    assert decision.cascade_reason == C.CASCADE_REASON_ESCALATED_UNSURE
    assert decision.cascade_confidence == pytest.approx(0.3)
    assert answer.status.degraded_level == 0


async def test_both_answers_are_billed_and_shown_apart() -> None:
    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.3, text=LITE_ANSWER, until=asyncio.Event()))
        answer = await mesh.generate(cascade(request_id="r-1"))
        assert answer.accounting.discarded_usage == LITE_USAGE
        assert answer.accounting.usage == FULL_USAGE
        await eventually(lambda: "r-1" in mesh.cache.settled)
        assert mesh.cache.settled["r-1"] == mesh_pb2.Usage(input_tokens=77, output_tokens=8)
        assert mesh.cache.counted["r-1"].discarded_usage == LITE_USAGE
        assert mesh.cache.admitted[0].reserve_tokens > 2 * 1024


async def test_more_tokens_than_can_be_said_are_billed_as_the_most() -> None:
    frames = Chunk.FromString(b"".join(encode(FULL_ANSWER))).frames
    frames[-1].end.usage.input_tokens = 2**32 - 1
    whole = Chunk(frames=frames).SerializeToString()

    async def script(call: Call, _: object) -> None:
        await call.write(whole)

    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.3, text=LITE_ANSWER, until=asyncio.Event()), script)
        answer = await mesh.generate(cascade(request_id="r-1"))
        assert answer.error is None
        await eventually(lambda: "r-1" in mesh.cache.settled)
        assert mesh.cache.settled["r-1"] == mesh_pb2.Usage(input_tokens=2**32 - 1, output_tokens=8)


async def test_lite_stream_is_given_up_when_full_has_a_field() -> None:
    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.3, until=asyncio.Event()), hanging(after=2))
        async with mesh.open(cascade()) as stream:
            await stream.read()
            await eventually(lambda: mesh.nodes["lite-1"].cancelled == 1)
            assert mesh.nodes["full-1"].running + mesh.nodes["full-2"].running == 1
        await eventually(mesh.is_quiet)


async def test_lite_waits_while_full_has_no_field() -> None:
    async with run_router(cascade_fields=1) as mesh:
        go_on = asyncio.Event()

        async def slow(call: Call, request: Any) -> None:
            await go_on.wait()
            await answering(FULL_ANSWER)(call, request)

        prepare(mesh, judged(0.3), slow)
        asking = asyncio.ensure_future(mesh.generate(cascade()))
        await eventually(lambda: mesh.nodes["full-1"].running + mesh.nodes["full-2"].running == 1)
        assert mesh.nodes["lite-1"].cancelled == 0
        go_on.set()
        assert document(await asking)["mood"] == "full"


@pytest.mark.parametrize(
    ("lite", "expected"),
    [
        (judged(0.9, text='{"mood":"x","score":11}'), C.CASCADE_REASON_ESCALATED_INVALID),
        (judged(0.9, text='{"mood":"x"', incomplete_reason=6), C.CASCADE_REASON_ESCALATED_INCOMPLETE),
        (judged(0.9, is_null=True), C.CASCADE_REASON_ESCALATED_ABSTAINED),
        (failing(), C.CASCADE_REASON_ESCALATED_FAILED),
        (failing(R.ERROR_REASON_CONTEXT_EXCEEDED), C.CASCADE_REASON_ESCALATED_UNFIT),
    ],
    ids=["invalid", "incomplete", "abstained", "failed", "unfit"],
)
async def test_trouble_of_lite_escalates(mesh: Mesh, lite: Any, expected: int) -> None:
    prepare(mesh, lite)
    answer = await mesh.generate(cascade())
    assert answer.error is None
    assert document(answer)["mood"] == "full"
    assert answer.decision.cascade_reason == expected
    assert answer.kinds[:3] == [FrameKind.FRAME_KIND_DECISION, FrameKind.FRAME_KIND_STATUS, FrameKind.FRAME_KIND_HEADER]
    assert answer.accounting.failed_attempts == int(expected == C.CASCADE_REASON_ESCALATED_FAILED)
    await eventually(mesh.is_quiet)


async def test_failed_lite_answer_is_not_billed(mesh: Mesh) -> None:
    prepare(mesh, failing(after=1))
    answer = await mesh.generate(cascade())
    assert not answer.accounting.HasField("discarded_usage")


async def test_limit_of_the_caller_is_no_trouble(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9, text='{"mood":"lite"', incomplete_reason=1))
    answer = await mesh.generate(cascade())
    assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_CONFIDENT
    assert answer.documents[-1].end.verdict == Verdict.VERDICT_INCOMPLETE


@pytest.mark.parametrize("after", [0, 1])
async def test_lite_without_a_field_in_time_is_replaced(after: int) -> None:
    async with run_router(cascade_window_ms=60) as mesh:
        prepare(mesh, hanging(after=after))
        answer = await mesh.generate(cascade())
        assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_LATE
        assert document(answer)["mood"] == "full"
        await eventually(lambda: mesh.nodes["lite-1"].cancelled == 1)


async def test_window_that_ends_with_a_sure_field_keeps_lite() -> None:
    async with run_router(cascade_window_ms=60) as mesh:
        until = asyncio.Event()
        prepare(mesh, judged(0.9, text=LITE_ANSWER, until=until))
        async with mesh.open(cascade()) as stream:
            first = await stream.read()
            assert first is not None
            until.set()
            rest = [chunk async for chunk in read_on(stream)]
        answer = Answer([first, *rest])
        assert document(answer)["mood"] == "lite"
        assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_CONFIDENT


async def test_answer_that_is_too_long_to_hold_is_judged_by_what_there_is() -> None:
    async with run_router(cascade_held_bytes=2000) as mesh:
        prepare(mesh, judged(0.9, text=json.dumps({"mood": "x" * 5000, "score": 1}), until=asyncio.Event()))
        async with mesh.open(cascade()) as stream:
            assert await stream.read()
        await eventually(mesh.is_quiet)


async def test_lite_without_probabilities_is_kept_for_lack_of_trouble(mesh: Mesh) -> None:
    prepare(mesh, judged(0.0, text=LITE_ANSWER))
    answer = await mesh.generate(cascade())
    assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_UNSCORED
    assert not answer.decision.HasField("cascade_confidence")


async def test_node_that_knows_no_confidence_is_kept_at_its_end(mesh: Mesh) -> None:
    prepare(mesh, answering(LITE_ANSWER))
    answer = await mesh.generate(cascade())
    assert document(answer)["mood"] == "lite"
    assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_UNSCORED


async def test_confidence_is_for_the_router_alone() -> None:
    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.9))
        answer = await mesh.generate(cascade())
        assert FrameKind.FRAME_KIND_CONFIDENCE not in answer.kinds
        assert mesh.nodes["lite-1"].requests[0].confidence_tokens == 16
        await mesh.generate(ask(policy="lite"))
        assert mesh.nodes["lite-1"].requests[1].confidence_tokens == 0


async def test_plain_text_is_judged_by_its_beginning(mesh: Mesh) -> None:
    prepare(mesh, judged(0.2, text="some words", schema=None, is_choice=False), answering("full", schema=None))
    answer = await mesh.generate(ask(schema=None, policy="cascade"))
    assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_UNSURE


async def test_stored_answer_is_the_one_that_was_delivered(mesh: Mesh) -> None:
    prepare(mesh, judged(0.3, text=LITE_ANSWER))
    first, second = await mesh.generate(cascade()), await mesh.generate(cascade())
    assert second.documents == first.documents
    assert document(second)["mood"] == "full"
    assert second.decision.cache_reason == CacheReason.CACHE_REASON_HIT
    assert second.decision.cascade_reason == C.CASCADE_REASON_UNSPECIFIED
    assert second.decision.tier == mesh_pb2.TIER_UNSPECIFIED
    assert len(used(mesh)) == 2


async def test_answer_of_a_cascade_is_no_answer_of_a_tier(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9, text=LITE_ANSWER))
    await mesh.generate(cascade())
    assert (await mesh.generate(ask(policy="lite"))).decision.cache_reason == CacheReason.CACHE_REASON_MISS


async def test_follower_sees_only_the_answer_that_is_delivered() -> None:
    async with run_router(append_interval_ms=5, cascade_fields=1) as mesh:
        go_on = asyncio.Event()

        async def slow(call: Call, request: Any) -> None:
            await go_on.wait()
            await answering(FULL_ANSWER)(call, request)

        prepare(mesh, judged(0.3, text=LITE_ANSWER), slow)
        leader = asyncio.ensure_future(mesh.generate(cascade()))
        await eventually(lambda: mesh.nodes["full-1"].running + mesh.nodes["full-2"].running == 1)
        follower = asyncio.ensure_future(mesh.generate(cascade()))
        await eventually(lambda: any(g.followers for g in mesh.cache.generations.values()))
        go_on.set()
        assert (await follower).documents == (await leader).documents
        assert document(await follower)["mood"] == "full"


async def test_sampled_cascade_is_not_stored(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9))
    request = cascade()
    request.prompt.sampling.CopyFrom(Sampling(temperature=0.7))
    await mesh.generate(request)
    assert not mesh.cache.stored


async def test_malformed_confidence_is_a_failure_of_the_node(mesh: Mesh) -> None:
    async def script(call: Call, _: object) -> None:
        await call.write(mesh_chunk(FrameKind.FRAME_KIND_CONFIDENCE, b"\xff\xff\xff"))

    prepare(mesh, script)
    answer = await mesh.generate(cascade())
    assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_FAILED


async def test_cascade_can_be_resumed(mesh: Mesh) -> None:
    prepare(mesh, judged(0.3, text=LITE_ANSWER))
    answer = await mesh.generate(cascade(request_id="r-1", resume_window_ms=5_000))
    request = ResumeRequest(request_id="r-1").SerializeToString()
    async with mesh.peer.open(RESUME, request, metadata=mesh.metadata()) as stream:
        again = await read_all(stream)
    assert again.documents == answer.documents
    assert document(again)["mood"] == "full"


async def test_cascade_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with run_router(decision_log=str(path)) as mesh:
        prepare(mesh, judged(0.3, text=LITE_ANSWER))
        await mesh.generate(cascade())
    result = json.loads(path.read_text())["result"]
    assert (result["cascade"], result["served_by"]) == ("escalated_unsure", "full")
    assert result["cascade_confidence"] == pytest.approx(0.3)
    assert result["discarded_output_tokens"] > 0
