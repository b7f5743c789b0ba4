"""Where stored answers come from, as callers and operators see it; and answers for when limits can't be asked."""

import asyncio

import pytest

from helpers.scripted_mesh import Mesh, R, ask, reason, used
from ssop.v1 import cache_admin_pb2 as pb
from ssop.v1 import router_pb2
from ssop.v1.mesh_pb2 import CACHE_LEVEL_LOCAL, CACHE_LEVEL_SHARED, CacheReason
from ssop_chassis.errors import MeshError

FLUSH = "/ssop.v1.CacheAdminService/FlushCache"
STATS = "/ssop.v1.CacheAdminService/GetCacheStats"
STATUS = "/ssop.v1.RouterService/GetMeshStatus"
GONE = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
SLOW = MeshError(R.ERROR_REASON_DEADLINE_EXCEEDED, "scripted")


async def call(mesh: Mesh, method: str, request: bytes = b"", *, scopes: tuple[str, ...] = ("admin",)) -> bytes:
    metadata = mesh.metadata(mesh.keys.of("acme", scopes))
    return await mesh.peer.unary(method, request, timeout_s=2, metadata=metadata)


async def test_status_names_where_an_answer_came_from(mesh: Mesh) -> None:
    first = await mesh.generate(ask(model="grok-3-lite"))
    second = await mesh.generate(ask(model="grok-3-lite"))
    assert (first.status.served_by, first.status.cache_level) == ("lite-1", 0)
    assert (second.status.served_by, second.status.cache_level) == ("cache", CACHE_LEVEL_SHARED)


async def test_stored_answer_is_served_and_flagged_while_limits_cannot_be_asked(mesh: Mesh) -> None:
    first = await mesh.generate(ask(model="grok-3-lite"))
    mesh.cache.admission_error = GONE
    for _ in range(5):
        second = await mesh.generate(ask(model="grok-3-lite"))
        assert second.documents == first.documents
        assert second.status.cache_level == CACHE_LEVEL_LOCAL
        assert second.status.age_ms == 1234
        assert "cache" in second.status.unavailable
        assert second.decision.cache_reason == CacheReason.CACHE_REASON_HIT
        assert not second.accounting.is_billed
    assert used(mesh) == ["lite-1"]


async def test_rate_limit_holds_for_stored_answers_too_while_it_cannot_be_asked(mesh: Mesh) -> None:
    mesh.cache.limits.max_rps, mesh.cache.limits.burst = 0.1, 1
    await mesh.generate(ask(model="grok-3-lite"))
    mesh.cache.admission_error = GONE
    first, second = [await mesh.generate(ask(model="grok-3-lite")) for _ in range(2)]
    assert first.status.is_cached
    assert reason(second) == R.ERROR_REASON_RATE_LIMITED


async def test_cache_only_is_served_while_limits_cannot_be_asked(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    mesh.cache.admission_error = GONE
    assert (await mesh.generate(ask(model="grok-3-lite"), policy="cache_only")).error is None
    miss = await mesh.generate(ask("other", model="grok-3-lite"), policy="cache_only")
    assert reason(miss) == R.ERROR_REASON_STORE_UNAVAILABLE


async def test_service_that_let_a_request_wait_is_not_asked_again_for_it(mesh: Mesh) -> None:
    await mesh.generate(ask(model="grok-3-lite"))
    mesh.cache.admission_error = SLOW
    calls = mesh.cache.calls
    answer = await mesh.generate(ask(model="grok-3-lite"))
    assert answer.status.served_by == "lite-1"
    assert mesh.cache.calls - calls <= 2  # admission, and settlement perhaps


async def test_admission_that_never_answers_costs_no_generation_of_what_is_stored(mesh: Mesh) -> None:
    first = await mesh.generate(ask(model="grok-3-lite"))
    mesh.cache.is_admission_frozen = True
    second = await mesh.generate(ask(model="grok-3-lite"))
    assert second.documents == first.documents
    assert (second.status.served_by, second.status.cache_level) == ("cache", CACHE_LEVEL_LOCAL)
    assert "cache" in second.status.unavailable
    assert used(mesh) == ["lite-1"]


async def test_crowd_whose_admissions_are_late_looks_for_few_answers(mesh: Mesh) -> None:
    mesh.cache.is_frozen = True
    lookups = mesh.cache.lookups
    await asyncio.gather(*(mesh.generate(ask(f"question {n}", model="grok-3-lite")) for n in range(40)))
    assert 0 < mesh.cache.lookups - lookups <= 8


async def test_flush_is_for_operators_only(mesh: Mesh) -> None:
    with pytest.raises(MeshError, match="admin"):
        await call(mesh, FLUSH, scopes=("lite", "full"))


@pytest.mark.parametrize(("named", "flushed"), [("", "acme"), ("other", "other")])
async def test_flush_drops_the_answers_of_one_tenant(mesh: Mesh, named: str, flushed: str) -> None:
    for tenant in ("acme", "other"):
        await mesh.generate(ask(model="grok-3-lite"), key=mesh.keys.of(tenant))
    reply = await call(mesh, FLUSH, pb.FlushCacheRequest(tenant=named).SerializeToString())
    assert pb.FlushCacheResponse.FromString(reply).tenant == flushed
    assert {tenant for tenant, _ in mesh.cache.stored} == {"acme", "other"} - {flushed}


async def test_flush_that_may_be_half_done_says_so(mesh: Mesh) -> None:
    mesh.cache.error = GONE
    with pytest.raises(MeshError) as caught:
        await call(mesh, FLUSH)
    assert caught.value.reason == R.ERROR_REASON_STORE_UNAVAILABLE


async def test_name_that_is_no_tenant_is_refused(mesh: Mesh) -> None:
    with pytest.raises(MeshError) as caught:
        await call(mesh, FLUSH, pb.FlushCacheRequest(tenant="a b").SerializeToString())
    assert caught.value.reason == R.ERROR_REASON_REQUEST_INVALID


async def test_stats_and_status_show_the_levels(mesh: Mesh) -> None:
    stats = pb.GetCacheStatsResponse.FromString(await call(mesh, STATS)).stats
    assert stats.local_answers == 3
    status = router_pb2.GetMeshStatusResponse.FromString(await call(mesh, STATUS))
    assert status.cache == stats


async def test_status_without_the_cache_lacks_its_levels(mesh: Mesh) -> None:
    mesh.cache.error = GONE
    assert not router_pb2.GetMeshStatusResponse.FromString(await call(mesh, STATUS)).HasField("cache")
