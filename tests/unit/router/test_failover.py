"""Attempts at nodes: what is unseen, what is told, and what comes from below the chosen tier."""

import asyncio

import pytest

from helpers.eventually import eventually
from helpers.machine import stretched
from helpers.scripted_mesh import (
    GOOD,
    Mesh,
    R,
    answering,
    ask,
    encode,
    failing,
    hanging,
    node_status_chunk,
    reason,
    run_router,
    used,
)
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import FrameKind, Verdict
from ssop.v1.mesh_pb2 import NodeReason
from ssop_chassis.call import Call


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
    answer = await mesh.generate(ask(model="grok-3-lite"), timeout_s=4)
    assert reason(answer) == R.ERROR_REASON_DEADLINE_EXCEEDED
    assert answer.error is not None
    assert answer.error.metadata["last_seq"] == str(answer.documents[-1].seq)
    await eventually(lambda: mesh.nodes["lite-1"].running == 0)


async def test_node_that_stalls_after_the_first_field_is_given_up() -> None:
    async with run_router(stall_timeout_ms=200) as mesh:
        mesh.nodes["lite-1"].script = hanging(after=2)
        answer = await mesh.generate(ask(model="grok-3-lite"))
        assert reason(answer) == R.ERROR_REASON_GENERATION_INTERRUPTED
        await eventually(lambda: mesh.nodes["lite-1"].running == 0)
        assert mesh.metric("ssop_router_attempt_outcomes_total", outcome="failure") == 1


async def test_node_that_lingers_as_it_was_asked_to_has_not_stalled() -> None:
    request = ask(model="grok-3-lite")
    request.prompt.linger_ms = 1_000
    async with run_router(stall_timeout_ms=50) as mesh:

        async def script(call: Call, _: object) -> None:
            *first, last = encode(GOOD)
            await call.write(b"".join([node_status_chunk(), *first]))
            await asyncio.sleep(0.4)
            await call.write(last)

        mesh.nodes["lite-1"].script = script
        assert (await mesh.generate(request)).error is None


async def test_node_whose_fields_come_apart_has_not_stalled() -> None:
    # All of it takes longer than the time-out, and a pause a third of that.
    pause_s = stretched(0.2)
    async with run_router(stall_timeout_ms=round(3_000 * pause_s)) as mesh:

        async def script(call: Call, _: object) -> None:
            for chunk in [node_status_chunk(), *encode(GOOD)]:
                await asyncio.sleep(pause_s)
                await call.write(chunk)

        mesh.nodes["lite-1"].script = script
        assert (await mesh.generate(ask(model="grok-3-lite"))).error is None


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
