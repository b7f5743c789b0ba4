"""Nodes that leave the rotation of a running router and come back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import Mesh, ask, default_nodes, reason, run_router
from helpers.scripted_node import R, ScriptedNode, answering, failing, hanging
from ssop.v1 import mesh_pb2
from ssop_chassis.errors import MeshError
from ssop_router.rotation import Rotation

HARD = "Compare the two step by step and explain why."
FAST = {"probe_ms": 100, "slow_start_ms": 0}


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    async with run_router(health=FAST) as running:
        yield running


def sicken(node: ScriptedNode, code: int = R.ERROR_REASON_BACKEND_FAILED) -> None:
    node.script = failing(code)  # type: ignore[arg-type]
    node.is_well = False


def heal(node: ScriptedNode) -> None:
    node.script = answering()
    node.is_well = True


def is_out(mesh: Mesh, name: str) -> bool:
    return mesh.metric("ssop_router_node_ejected", address=name) == 1


async def ask_all(mesh: Mesh, policy: str) -> list[MeshError | None]:
    answers = await asyncio.gather(*(mesh.generate(ask(HARD, policy=policy)) for _ in range(16)))
    return [answer.error for answer in answers]


async def ask_until_out(mesh: Mesh, name: str, policy: str = "full,no_cache") -> None:
    """Crowds of requests, all of which are served, until the node is out.

    Of requests that come one by one a node that has failed gets none as long as another is idle.
    """
    for _ in range(30):
        assert await ask_all(mesh, policy) == [None] * 16
        if is_out(mesh, name):
            return
    raise AssertionError(f"{name} is still in")


async def test_node_that_fails_fast_is_out_and_no_caller_sees_it(mesh: Mesh) -> None:
    sicken(mesh.nodes["full-1"])
    await ask_until_out(mesh, "full-1")
    before = len(mesh.nodes["full-1"].requests)
    for _ in range(20):
        assert (await mesh.generate(ask(policy="full,no_cache"))).error is None
    assert len(mesh.nodes["full-1"].requests) == before
    assert mesh.metric("ssop_router_ejections_total", rule="consecutive_failures", verdict="ejected") == 1


async def test_node_that_is_well_again_is_tried_and_comes_back(mesh: Mesh) -> None:
    node = mesh.nodes["full-1"]
    sicken(node)
    await ask_until_out(mesh, "full-1")
    await eventually(lambda: mesh.metric("ssop_router_probes_total", outcome="bad") >= 1)
    heal(node)
    await eventually(lambda: not is_out(mesh, "full-1"))
    before = len(node.requests)
    await ask_all(mesh, "full,no_cache")
    assert len(node.requests) > before


async def test_hung_node_is_a_hard_failure_and_goes() -> None:
    async with run_router(health=FAST, first_field_timeout_ms=1_000) as mesh:
        mesh.nodes["full-1"].script = hanging()
        mesh.nodes["full-1"].is_well = False
        await ask_until_out(mesh, "full-1")


async def test_fault_of_all_nodes_ejects_none(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        sicken(node)
    for _ in range(60):
        assert reason(await mesh.generate(ask(policy="full,no_cache"))) == R.ERROR_REASON_NO_BACKEND
    await eventually(lambda: not any(is_out(mesh, name) for name in ("full-1", "full-2")))
    for node in mesh.nodes.values():
        heal(node)
    assert (await mesh.generate(ask(policy="full,no_cache"))).error is None


@pytest.mark.parametrize(
    "code",
    [R.ERROR_REASON_REQUEST_INVALID, R.ERROR_REASON_CONTEXT_EXCEEDED, R.ERROR_REASON_CONTENT_UNSUPPORTED],
)
async def test_24_bad_requests_in_a_row_eject_nobody(mesh: Mesh, code: int) -> None:
    for node in mesh.nodes.values():
        node.script = failing(code)  # type: ignore[arg-type]
    for _ in range(24):
        assert reason(await mesh.generate(ask(policy="full,no_cache"))) == code
    assert mesh.metric("ssop_router_ejections_total", rule="consecutive_failures", verdict="ejected") == 0


async def test_callers_that_leave_eject_nobody(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        node.script = hanging()
    for _ in range(40):
        async with mesh.open(ask(policy="full,no_cache")):
            await eventually(lambda: any(node.running for node in mesh.nodes.values()))
    await eventually(mesh.is_quiet)
    assert not any(is_out(mesh, name) for name in mesh.nodes)


async def test_node_that_turns_away_is_asked_less_stays_in_and_serves_again_at_once() -> None:
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}
    async with run_router(nodes, health=FAST, has_rag=False) as mesh:
        nodes["full-1"].script = failing(R.ERROR_REASON_OVERLOADED)
        for _ in range(30):
            assert (await mesh.generate(ask(policy="full,no_cache", max_degraded_level=0))).error is not None
        assert not is_out(mesh, "full-1")
        assert mesh.metric("ssop_router_node_refusals_total") >= 30
        heal(nodes["full-1"])
        assert (await mesh.generate(ask(policy="full,no_cache"))).error is None


async def test_only_node_of_a_tier_may_go_since_the_ladder_goes_on() -> None:
    nodes = default_nodes()
    del nodes["full-2"]
    async with run_router(nodes, health=FAST) as mesh:
        sicken(nodes["full-1"])
        await ask_until_out(mesh, "full-1", "no_cache")
        answer = await mesh.generate(ask(HARD, policy="no_cache"))
        assert answer.status.degraded_level == 2


async def test_look_that_fails_is_counted_and_nodes_come_back_all_the_same(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = mesh.nodes["full-1"]
    sicken(node)
    await ask_until_out(mesh, "full-1")
    with monkeypatch.context() as patched:
        patched.setattr(Rotation, "look", lambda _: 1 / 0)
        await eventually(lambda: mesh.metric("ssop_router_watch_faults_total") > 0)
    heal(node)
    await eventually(lambda: not is_out(mesh, "full-1"))


@pytest.mark.parametrize(
    ("code", "comes_back"), [(R.ERROR_REASON_UNSUPPORTED, True), (R.ERROR_REASON_OVERLOADED, False)]
)
async def test_node_that_can_not_be_tried_comes_back_and_a_full_one_waits(
    mesh: Mesh, code: int, comes_back: bool
) -> None:
    node = mesh.nodes["full-1"]
    sicken(node)
    node.warm_up_fault = code  # type: ignore[assignment]
    await ask_until_out(mesh, "full-1")
    node.script = answering()
    if comes_back:
        await eventually(lambda: not is_out(mesh, "full-1"))
        return
    await eventually(lambda: mesh.metric("ssop_router_probes_total", outcome="busy") >= 2)
    assert is_out(mesh, "full-1")
    heal(node)
    await eventually(lambda: not is_out(mesh, "full-1"))


async def test_only_node_of_a_mesh_that_fails_is_asked_on_and_the_log_is_not_flooded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = {"only": ScriptedNode("only", [mesh_pb2.TIER_LITE, mesh_pb2.TIER_FULL])}
    async with run_router(nodes, health=FAST, has_rag=False) as mesh:
        sicken(nodes["only"])
        for _ in range(40):
            assert reason(await mesh.generate(ask(policy="no_cache"))) == R.ERROR_REASON_NO_BACKEND
        assert mesh.metric("ssop_router_ejections_total", rule="consecutive_failures", verdict="last_of_its_tier") >= 4
        assert sum("although a rule spoke" in record.message for record in caplog.records) == 1
        heal(nodes["only"])
        assert (await mesh.generate(ask(policy="no_cache"))).error is None


async def test_probes_end_with_the_router() -> None:
    async with run_router(health=FAST) as mesh:
        sicken(mesh.nodes["full-1"])
        await ask_until_out(mesh, "full-1")
    before = mesh.nodes["full-1"].warm_ups
    for _ in range(10):
        await asyncio.sleep(0)
    assert mesh.nodes["full-1"].warm_ups == before


async def test_status_shows_who_is_out_and_why(mesh: Mesh) -> None:
    sicken(mesh.nodes["full-1"])
    await ask_until_out(mesh, "full-1")
    views = {view.name: view for view in mesh.router.nodes.snapshot().nodes}
    assert (views["full-1"].is_ejected, views["full-1"].ejection_reason) == (True, "consecutive_failures")
