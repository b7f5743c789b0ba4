"""Cascades that lose a tier, their client or their time: what goes out, and what is freed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.cascades import FULL_ANSWER, LITE_ANSWER, cascade, document, prepare
from helpers.eventually import eventually
from helpers.scripted_mesh import (
    GOOD,
    Mesh,
    R,
    Script,
    answering,
    ask,
    default_nodes,
    encode,
    failing,
    hanging,
    judged,
    reason,
    run_router,
    used,
)
from ssop.v1 import mesh_pb2
from ssop.v1.frame_pb2 import FrameKind
from ssop.v1.mesh_pb2 import CascadeReason, TierReason
from ssop_chassis.call import Call

C = CascadeReason


@pytest.mark.parametrize(
    "full", [failing(), failing(R.ERROR_REASON_CONTEXT_EXCEEDED), failing(R.ERROR_REASON_OVERLOADED)]
)
async def test_lite_answer_goes_out_degraded_where_full_fails(mesh: Mesh, full: Any) -> None:
    prepare(mesh, judged(0.3, text=LITE_ANSWER), full)
    answer = await mesh.generate(cascade(request_id="r-1"))
    assert answer.error is None
    assert document(answer)["mood"] == "lite"
    assert answer.status.degraded_level == 2
    assert answer.trailers["x-ssop-status"] == "DEGRADED"
    assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_FULL_UNAVAILABLE
    assert answer.decision.cascade_confidence == pytest.approx(0.3)
    assert (answer.decision.tier, answer.decision.node) == (mesh_pb2.TIER_FULL, "lite-1")
    assert not mesh.cache.stored
    reason_name = "CASCADE_REASON_KEPT_FULL_UNAVAILABLE"
    assert mesh.metric("ssop_router_cascades_total", outcome="fallback", reason=reason_name) == 1
    await eventually(lambda: "r-1" in mesh.cache.settled)
    assert mesh.cache.settled["r-1"] == answer.accounting.usage


async def test_lite_answer_goes_out_degraded_where_there_is_no_full_node() -> None:
    nodes = {name: node for name, node in default_nodes().items() if name.startswith("lite")}
    async with run_router(nodes) as mesh:
        nodes["lite-1"].script = judged(0.3, text=LITE_ANSWER)
        answer = await mesh.generate(cascade())
        assert document(answer)["mood"] == "lite"
        assert answer.status.degraded_reason == mesh_pb2.DEGRADED_REASON_NODES_UNAVAILABLE


async def test_full_answers_where_there_is_no_lite_node() -> None:
    nodes = {name: node for name, node in default_nodes().items() if name.startswith("full")}
    async with run_router(nodes) as mesh:
        answer = await mesh.generate(cascade())
        assert answer.error is None
        assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_FAILED
        assert answer.status.degraded_level == 0


async def test_request_that_lite_cannot_hold_goes_to_full_at_once(mesh: Mesh) -> None:
    mesh.nodes["lite-1"].status.models[0].context_tokens = 10
    await eventually(lambda: any(m.context_tokens == 10 for n in mesh.router.nodes.snapshot().nodes for m in n.models))
    answer = await mesh.generate(cascade("word " * 100))
    assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_UNFIT
    assert used(mesh)[0].startswith("full")


async def test_caller_that_refuses_degraded_answers_gets_none(mesh: Mesh) -> None:
    prepare(mesh, judged(0.3, until=asyncio.Event()), failing())
    answer = await mesh.generate(cascade(max_degraded_level=1))
    assert reason(answer) == R.ERROR_REASON_DEGRADED_REFUSED
    assert answer.documents == []
    await eventually(mesh.is_quiet)


async def test_nothing_is_left_where_both_fail(mesh: Mesh) -> None:
    prepare(mesh, failing(), failing())
    assert reason(await mesh.generate(cascade())) == R.ERROR_REASON_NO_BACKEND
    assert mesh.metric("ssop_router_cascades_total", outcome="none", reason="CASCADE_REASON_ESCALATED_FAILED") == 1


async def test_late_lite_answer_goes_out_where_full_fails() -> None:
    async with run_router(cascade_window_ms=60) as mesh:
        go_on = asyncio.Event()

        async def late(call: Call, request: Any) -> None:
            await go_on.wait()
            await judged(0.9, text=LITE_ANSWER)(call, request)

        async def broken(call: Call, request: Any) -> None:
            go_on.set()
            await failing()(call, request)

        prepare(mesh, late, broken)
        answer = await mesh.generate(cascade())
        assert document(answer)["mood"] == "lite"
        assert answer.decision.cascade_reason == C.CASCADE_REASON_KEPT_FULL_UNAVAILABLE


async def test_reserve_that_breaks_leaves_nothing() -> None:
    go_down = asyncio.Event()

    async def dies(call: Call, request: Any) -> None:
        for chunk in encode(GOOD)[:1]:
            await call.write(chunk)
        await go_down.wait()
        await failing()(call, request)

    async def broken(call: Call, request: Any) -> None:
        go_down.set()
        await failing()(call, request)

    async with run_router(cascade_window_ms=60) as other:
        prepare(other, dies, broken)
        assert reason(await other.generate(cascade())) == R.ERROR_REASON_NO_BACKEND
        await eventually(other.is_quiet)


async def test_answer_that_breaks_behind_the_gate_is_replaced(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9, text='{"mood":"lite"', incomplete_reason=5))
    answer = await mesh.generate(cascade())
    assert document(answer)["mood"] == "full"
    assert answer.decision.cascade_reason == C.CASCADE_REASON_ESCALATED_FAILED


async def test_kept_answer_that_breaks_is_told() -> None:
    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.9, text='{"mood":"lite"', incomplete_reason=5))
        assert reason(await mesh.generate(cascade())) == R.ERROR_REASON_GENERATION_INTERRUPTED


async def test_client_that_goes_away_in_the_window_frees_lite(mesh: Mesh) -> None:
    prepare(mesh, hanging(after=1))
    stream = mesh.open(cascade())
    await eventually(lambda: mesh.nodes["lite-1"].running == 1)
    await stream.cancel()
    await eventually(mesh.is_quiet)
    assert mesh.nodes["lite-1"].cancelled == 1
    assert used(mesh) == ["lite-1"]


async def test_client_that_goes_away_after_the_window_frees_both() -> None:
    async with run_router(cascade_fields=1) as mesh:
        prepare(mesh, judged(0.3, until=asyncio.Event()), hanging(after=1))
        stream = mesh.open(cascade())
        await eventually(lambda: mesh.nodes["full-1"].running + mesh.nodes["full-2"].running == 1)
        assert mesh.nodes["lite-1"].running == 1
        await stream.cancel()
        await eventually(mesh.is_quiet)


async def test_deadline_ends_both(mesh: Mesh) -> None:
    prepare(mesh, hanging(), hanging())
    answer = await mesh.generate(cascade(), timeout_s=1)
    assert reason(answer) == R.ERROR_REASON_DEADLINE_EXCEEDED
    # Half of the time was full's.
    assert len(used(mesh)) == 2
    await eventually(mesh.is_quiet)


@pytest.mark.parametrize("missing", ["lite", "full"])
async def test_cascade_needs_both_scopes(mesh: Mesh, missing: str) -> None:
    scopes = [scope for scope in ("lite", "full", "ssop") if scope != missing]
    answer = await mesh.generate(cascade(), key=mesh.keys.of(scopes=scopes))
    assert reason(answer) == R.ERROR_REASON_SCOPE_MISSING
    assert answer.error is not None
    assert answer.error.metadata["scope"] == missing
    assert used(mesh) == []


async def test_cascade_pins_no_conversation(mesh: Mesh) -> None:
    prepare(mesh, judged(0.9))
    await mesh.generate(cascade(conversation_id="c"))
    answer = await mesh.generate(ask("And then?", conversation_id="c"))
    assert answer.decision.tier_reason != TierReason.TIER_REASON_CONVERSATION_PIN


async def test_cascades_that_are_cancelled_anywhere_leave_nothing_behind() -> None:
    async with run_router(cascade_fields=1, cascade_window_ms=30) as mesh:
        scripts = [hanging(), hanging(after=1), judged(0.3, until=asyncio.Event()), judged(0.9), failing()]
        before = len(asyncio.all_tasks())
        for round_ in range(20):
            prepare(mesh, scripts[round_ % 5], [hanging(after=1), hanging(after=2), failing()][round_ % 3])
            streams = [mesh.open(cascade(f"{round_} {i}")) for i in range(20)]
            await asyncio.sleep(0.004 * round_)
            await asyncio.gather(*(stream.cancel() for stream in streams))
        await eventually(mesh.is_quiet)
        await eventually(lambda: len(asyncio.all_tasks()) <= before)


LITES: dict[str, Callable[[], Script]] = {
    "sure": lambda: judged(0.9, text=LITE_ANSWER),
    "unsure": lambda: judged(0.2, text=LITE_ANSWER),
    "unsure and slow": lambda: judged(0.2, text=LITE_ANSWER, until=asyncio.Event()),
    "unscored": lambda: judged(0.0, text=LITE_ANSWER),
    "invalid": lambda: judged(0.9, text='{"mood":"lite","score":99}'),
    "cut": lambda: judged(0.9, text='{"mood":"lite"', incomplete_reason=6),
    "null": lambda: judged(0.9, text=LITE_ANSWER, is_null=True),
    "silent": hanging,
    "half silent": lambda: hanging(after=1),
    "broken": failing,
    "broken late": lambda: failing(after=1),
}
FULLS: dict[str, Callable[[], Script]] = {
    "well": lambda: answering(FULL_ANSWER),
    "broken": failing,
    "broken late": lambda: failing(after=2),
    "silent": hanging,
}


@pytest.mark.parametrize("full", FULLS)
@pytest.mark.parametrize("lite", LITES)
async def test_whatever_happens_a_client_sees_one_node(lite: str, full: str) -> None:
    async with run_router(cascade_window_ms=50, first_field_timeout_ms=150, max_attempts=2) as mesh:
        prepare(mesh, LITES[lite](), FULLS[full]())
        answer = await mesh.generate(cascade(request_id="r-1"), timeout_s=2)
        documents = answer.documents
        assert [frame.seq for frame in documents] == list(range(1, len(documents) + 1))
        headers = answer.kinds.count(FrameKind.FRAME_KIND_HEADER)
        assert headers == bool(documents)
        assert answer.kinds.count(FrameKind.FRAME_KIND_DECISION) == headers
        if documents:
            is_lite = answer.decision.node == "lite-1"
            values = {frame.string_value for frame in documents if frame.string_value}
            assert values <= ({"lite"} if is_lite else {"full", "fine"})
            is_kept = answer.decision.cascade_reason < C.CASCADE_REASON_ESCALATED_UNSURE
            assert is_kept == is_lite
        else:
            assert answer.error is not None
        await eventually(mesh.is_quiet)
        await eventually(lambda: "r-1" in mesh.cache.settled)
