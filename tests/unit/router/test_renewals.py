"""Signs of life of what a router generates."""

import asyncio

import pytest

from helpers.eventually import eventually
from helpers.scripted_mesh import ask, hanging, run_router
from ssop.v1.cache_pb2 import LeaseState
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError

R = ErrorReason


async def test_leases_and_reservations_of_a_tenant_are_renewed_in_one_call() -> None:
    async with run_router(lease_ms=40) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        streams = [mesh.open(ask(f"question {number}")) for number in range(3)]
        for stream in streams:
            await stream.read()
        await eventually(lambda: any(len(one.leases) == 3 for one in mesh.cache.renewals))
        renewal = mesh.cache.renewals[-1]
        assert len(set(renewal.request_ids)) == 3
        assert (renewal.lease_ms, renewal.reservation_ms) == (40, 10_000)
        for stream in streams:
            await stream.cancel()
        await eventually(mesh.is_quiet)
        number = len(mesh.cache.renewals)
        await asyncio.sleep(0.1)
        assert len(mesh.cache.renewals) == number


async def test_a_generation_that_gave_its_lease_up_stays_reserved_until_it_settles() -> None:
    async with run_router(lease_ms=40) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        stream = mesh.open(ask("a question"))
        await stream.read()
        (job,) = mesh.router.pipeline._running.values()
        assert job.lease is not None
        job.lease.give_up("degraded")  # type: ignore[attr-defined]
        await eventually(lambda: bool(mesh.cache.commits))
        seen = len(mesh.cache.renewals)
        await eventually(lambda: len(mesh.cache.renewals) > seen + 1)
        renewal = mesh.cache.renewals[-1]
        assert (list(renewal.request_ids), list(renewal.leases)) == ([job.request_id], [])
        await stream.cancel()
        await eventually(mesh.is_quiet)
        assert job.request_id in mesh.cache.settled


async def test_one_without_a_lease_is_renewed_too() -> None:
    async with run_router(lease_ms=40) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        stream = mesh.open(ask("a question", policy="no_cache"))
        await stream.read()
        await eventually(lambda: any(one.request_ids and not one.leases for one in mesh.cache.renewals))
        await stream.cancel()


async def test_reservations_are_renewed_less_often_than_leases() -> None:
    async with run_router(lease_ms=40, reservation_ms=600_000) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        stream = mesh.open(ask("a question"))
        await stream.read()
        await eventually(lambda: len(mesh.cache.renewals) > 3)
        assert [len(one.request_ids) for one in mesh.cache.renewals[:4]] == [1, 0, 0, 0]
        await stream.cancel()


async def test_reservations_that_could_not_be_renewed_are_with_the_next_call() -> None:
    async with run_router(lease_ms=40, reservation_ms=600_000) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        mesh.cache.renewal_error = MeshError(R.ERROR_REASON_STORE_UNAVAILABLE, "scripted")
        stream = mesh.open(ask("a question"))
        await stream.read()
        await eventually(lambda: mesh.metric("ssop_router_renewal_failures_total") > 1)
        mesh.cache.renewal_error = None
        seen = len(mesh.cache.renewals)
        await eventually(lambda: len(mesh.cache.renewals) > seen)
        assert mesh.cache.renewals[seen].request_ids
        await stream.cancel()


@pytest.mark.parametrize("reason", [R.ERROR_REASON_STORE_UNAVAILABLE, R.ERROR_REASON_UNSUPPORTED])
async def test_a_renewal_that_fails_is_counted_and_tried_again(reason: ErrorReason.ValueType) -> None:
    async with run_router(lease_ms=40) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        stream = mesh.open(ask("a question", policy="no_cache"))
        await stream.read()
        mesh.cache.error = MeshError(reason, "scripted")
        await eventually(lambda: mesh.metric("ssop_router_renewal_failures_total") > 0)
        mesh.cache.error = None
        seen = len(mesh.cache.renewals)
        await eventually(lambda: len(mesh.cache.renewals) > seen)
        await stream.cancel()


async def test_a_lease_that_is_lost_stores_nothing() -> None:
    async with run_router(lease_ms=40) as mesh:
        mesh.nodes["full-1"].script = mesh.nodes["full-2"].script = hanging(after=2)
        stream = mesh.open(ask("a question"))
        await stream.read()
        (job,) = mesh.router.pipeline._running.values()
        lease = job.lease
        assert lease is not None
        lease.hear(LeaseState(is_lost=True))  # type: ignore[attr-defined]
        assert lease.is_spoiled == "lease_lost"  # type: ignore[attr-defined]
        await stream.cancel()
        await eventually(mesh.is_quiet)
        assert not mesh.cache.commits
