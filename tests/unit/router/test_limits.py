"""Limits on a router whose cache service is gone, and what the router says of load."""

import asyncio
import time

from helpers.eventually import eventually
from helpers.scripted_mesh import Answer, Mesh, R, ask, failing, hanging, reason, run_router
from ssop.v1.cache_pb2 import TenantLimits
from ssop.v1.router_pb2 import GetMeshStatusRequest, GetMeshStatusResponse, RateLimitView
from ssop_chassis.errors import MeshError

GONE = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")


async def view(mesh: Mesh) -> RateLimitView:
    key = mesh.keys.of(scopes=["admin"])
    data = await mesh.peer.unary(
        "/ssop.v1.RouterService/GetMeshStatus",
        GetMeshStatusRequest().SerializeToString(),
        timeout_s=5,
        metadata=mesh.metadata(key),
    )
    return GetMeshStatusResponse.FromString(data).rate_limit


async def lose_cache(mesh: Mesh, limits: TenantLimits) -> None:
    """Serve one request by these limits, then let the cache service fail."""
    mesh.cache.limits = limits
    await mesh.generate()
    mesh.cache.error = GONE


async def ask_many(mesh: Mesh, number: int, key: str | None = None) -> list[Answer]:
    return [await mesh.generate(ask(policy="no_cache"), key=key) for _ in range(number)]


def refusals(answers: list[Answer]) -> int:
    for answer in answers:
        assert answer.error is None or reason(answer) == R.ERROR_REASON_RATE_LIMITED
    return sum(answer.error is not None for answer in answers)


async def test_the_last_limit_holds_when_nobody_can_be_asked() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=0.01, burst=3))
        answers = await ask_many(mesh, 6)
        assert [answer.error is None for answer in answers] == [True] * 3 + [False] * 3
        assert answers[0].status.unavailable == ["cache", "rate_limit"]
        assert answers[-1].error is not None
        assert 90_000 < (answers[-1].error.retry_after_ms or 0) <= 100_000


async def test_each_of_several_routers_holds_its_share() -> None:
    async with run_router(routers=3) as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=0.03, burst=6))
        assert refusals(await ask_many(mesh, 6)) == 4
        assert (await view(mesh)).local_rps == 0.01


async def test_tenants_have_shares_of_their_own() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=0.01, burst=1))
        assert refusals(await ask_many(mesh, 3)) == 2
        assert refusals(await ask_many(mesh, 3, mesh.keys.of("other"))) == 2


async def test_without_a_limit_there_is_none_to_hold() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits())
        answers = await ask_many(mesh, 20)
        assert refusals(answers) == 0
        assert answers[0].status.unavailable == ["cache"]


async def test_a_limit_that_was_never_heard_is_not_none() -> None:
    async with run_router(unknown_limit_rps=0.01) as mesh:
        mesh.cache.error = GONE
        assert refusals(await ask_many(mesh, 4)) == 3
        assert not (await view(mesh)).is_known


async def test_a_failing_cache_still_tells_a_new_router_the_limit() -> None:
    async with run_router(unknown_limit_rps=0.01) as mesh:
        told = TenantLimits(max_rps=0.01, burst=3).SerializeToString().hex()
        mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted", metadata={"limits": told})
        assert refusals(await ask_many(mesh, 5)) == 2
        assert (await view(mesh)).is_known


async def test_limits_that_are_garbage_are_not_taken() -> None:
    async with run_router(unknown_limit_rps=0.01) as mesh:
        mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted", metadata={"limits": "zz"})
        assert refusals(await ask_many(mesh, 3)) == 2


async def test_a_budget_that_nobody_checks_is_not_spent() -> None:
    async with run_router(promise_wait_ms=0) as mesh:
        await lose_cache(mesh, TenantLimits(has_budget=True))
        answer = await mesh.generate()
        assert reason(answer) == R.ERROR_REASON_STORE_UNAVAILABLE
        assert answer.error is not None
        assert answer.error.metadata["limit"] == "token_budget"
        assert answer.error.retry_after_ms == 1_000
        assert mesh.metric("ssop_router_local_admissions_total", outcome="refused_budget") == 1
        mesh.cache.error = None
        assert (await mesh.generate()).error is None


async def test_a_request_with_a_budget_waits_for_a_store_that_comes_back() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits(has_budget=True))
        asked = [asyncio.ensure_future(mesh.generate(ask(policy="no_cache"))) for _ in range(8)]
        calls = mesh.cache.calls
        await eventually(lambda: mesh.cache.calls >= calls + 10)
        mesh.cache.error = None
        assert [(await answer).error for answer in asked] == [None] * 8
        assert not (await asked[0]).status.unavailable


async def test_those_that_ask_the_same_wait_and_are_one_model_call() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits())
        asked = [asyncio.ensure_future(mesh.generate(ask("all at once"))) for _ in range(8)]
        calls = mesh.cache.calls
        await eventually(lambda: mesh.cache.calls >= calls + 10)
        mesh.cache.error = None
        assert [(await answer).error for answer in asked] == [None] * 8
        generations = [request for node in mesh.nodes.values() for request in node.requests]
        assert len(generations) == 2


async def test_a_lone_request_does_not_wait() -> None:
    async with run_router(promise_wait_ms=60_000) as mesh:
        await lose_cache(mesh, TenantLimits())
        assert (await mesh.generate(ask("alone"))).status.unavailable == ["cache"]


async def test_budgets_that_nobody_checks_are_said() -> None:
    async with run_router(unchecked_budget="serve", promise_wait_ms=0) as mesh:
        await lose_cache(mesh, TenantLimits(has_budget=True))
        assert (await mesh.generate()).status.unavailable == ["cache", "token_budget"]
        assert mesh.metric("ssop_router_budgets_unchecked_total") == 1
        assert (await view(mesh)).is_budget_unchecked


async def test_the_shared_limit_holds_again_with_its_first_word() -> None:
    async with run_router(skip_ms=1) as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=0.01, burst=1))
        assert refusals(await ask_many(mesh, 2)) == 1
        assert mesh.metric("ssop_router_limits_local") == 1
        assert (await view(mesh)).is_local
        mesh.cache.error = MeshError(R.ERROR_REASON_RATE_LIMITED, "scripted", retry_after_ms=1)
        await mesh.generate()
        assert mesh.metric("ssop_router_limits_local") == 0
        mesh.cache.error = None
        assert refusals(await ask_many(mesh, 3)) == 0
        assert mesh.metric("ssop_router_local_admissions_total", outcome="refused") == 1


async def test_a_refused_request_is_settled_by_nobody() -> None:
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=0.01, burst=1))
        await ask_many(mesh, 2)
        mesh.cache.error = None
        await eventually(mesh.is_quiet)
        assert len(mesh.cache.settled) <= 2


async def test_the_router_says_the_share_that_its_nodes_bear() -> None:
    async with run_router() as mesh:
        await mesh.generate()
        assert mesh.cache.admitted[-1].rate_share == 1.0
        assert mesh.metric("ssop_router_rate_share") == 1.0


async def test_the_limit_is_a_metric() -> None:
    async with run_router() as mesh:
        assert mesh.metric("ssop_router_rate_limit_rps") == -1
        mesh.cache.limits = TenantLimits(max_rps=40, burst=4, min_rps=1, is_dynamic=True)
        await mesh.generate()
        assert mesh.metric("ssop_router_rate_limit_rps") == 40


async def test_nodes_that_fail_do_not_lower_the_rate() -> None:
    async with run_router() as mesh:
        for name in ("full-1", "full-2"):
            mesh.nodes[name].script = failing()
        await ask_many(mesh, 12)
        assert mesh.metric("ssop_router_rate_share") == 1.0
        assert not mesh.router.pipeline.in_flight


async def test_requests_that_wait_for_their_first_field_lower_the_rate() -> None:
    async with run_router(first_field_target_ms=10) as mesh:
        for node in mesh.nodes.values():
            node.script = hanging()
        waiting = [asyncio.ensure_future(mesh.generate(ask(policy="no_cache"))) for _ in range(8)]
        await eventually(lambda: mesh.metric("ssop_router_rate_share") < 0.5)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_first_field_ends_the_wait_though_the_answer_goes_on() -> None:
    async with run_router() as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        streams = [mesh.open(ask(policy="no_cache")) for _ in range(4)]
        for stream in streams:
            await stream.read()
        throttle = mesh.router.pipeline._answers._limits.throttle
        assert mesh.router.pipeline.in_flight == 4
        assert (len(throttle._waiting), len(throttle._fields)) == (0, 4)
        for stream in streams:
            await stream.cancel()


async def test_nodes_that_are_full_lower_the_rate() -> None:
    async with run_router() as mesh:
        for node in mesh.nodes.values():
            node.script = failing(R.ERROR_REASON_OVERLOADED)

        async def has_fallen() -> bool:
            await mesh.generate(ask(policy="no_cache"))
            return mesh.metric("ssop_router_rate_share") < 0.9

        started_s = time.monotonic()
        while not await has_fallen():
            assert time.monotonic() - started_s < 60, "the rate does not fall"


async def test_a_limit_that_comes_back_after_another_one_holds_again() -> None:
    """What is heard again is not taken again, unless something else was heard between."""
    async with run_router() as mesh:
        await lose_cache(mesh, TenantLimits(max_rps=5, burst=3))
        told = TenantLimits(max_rps=7, burst=3).SerializeToString().hex()
        mesh.cache.error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted", metadata={"limits": told})
        await mesh.generate()
        assert (await view(mesh)).max_rps == 7
        mesh.cache.error = None
        await mesh.generate()
        assert (await view(mesh)).max_rps == 5
