"""Leases of nodes in a real Redis: renewed, lapsed, given back, bounded, and kept from tenants."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.cache_service import CacheUnderTest, running_cache
from helpers.redis_server import RedisServer, redis_pair
from helpers.scripted_mesh import SECRET
from ssop.v1 import registry_pb2
from ssop_cache.core.registry import MAX_LEASES, announce_node
from ssop_chassis.dispatch import inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import RESERVED_TENANT, Principal, Signer
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.serving import wall_clock_ms

Servers = tuple[RedisServer, RedisServer]
ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


@pytest.fixture(autouse=True)
def _empty(servers: Servers) -> None:
    servers[0].ask("FLUSHALL")


class Registry:
    """Calls of the service, as the mesh or as a tenant."""

    def __init__(self, under_test: CacheUnderTest, tenant: str = RESERVED_TENANT) -> None:
        self._peer = MemoryPeer(under_test.cache.services, inner_authenticate(SECRET))
        self._metadata = Signer(SECRET, "inference", wall_clock_ms).metadata(Principal(tenant, "k1"))

    async def _call(self, method: str, request: Any) -> bytes:
        path = f"/ssop.v1.RegistryService/{method}"
        return await self._peer.unary(path, request.SerializeToString(), timeout_s=20, metadata=self._metadata)

    async def announce(
        self, address: str, instance: str = ONE, lease_ms: int = 60_000, announcement: bytes = b"signed\0\n\xff"
    ) -> None:
        request = registry_pb2.AnnounceNodeRequest(
            address=address, instance=instance, lease_ms=lease_ms, announcement=announcement
        )
        await self._call("AnnounceNode", request)

    async def withdraw(self, address: str, instance: str = ONE) -> bool:
        request = registry_pb2.WithdrawNodeRequest(address=address, instance=instance)
        return registry_pb2.WithdrawNodeResponse.FromString(await self._call("WithdrawNode", request)).was_there

    async def list(self) -> dict[bytes, int]:
        data = await self._call("ListNodes", registry_pb2.ListNodesRequest())
        return {lease.announcement: lease.age_ms for lease in registry_pb2.ListNodesResponse.FromString(data).leases}


async def test_announcement_is_handed_on_as_it_was_given(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        registry = Registry(under_test)
        assert await registry.list() == {}
        await registry.announce("a:1")
        await registry.announce("b:1", OTHER, announcement=b" 12 34 x")
        found = await registry.list()
        assert set(found) == {b"signed\0\n\xff", b" 12 34 x"}
        assert max(found.values()) < 30_000


async def test_lease_lapses_and_a_renewal_keeps_it(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        registry = Registry(under_test)
        await registry.announce("a:1", lease_ms=500, announcement=b"short")
        await registry.announce("b:1", lease_ms=500, announcement=b"renewed")
        await registry.announce("b:1", lease_ms=600_000, announcement=b"renewed")
        async with asyncio.timeout(60):
            while b"short" in await registry.list():
                await asyncio.sleep(0.02)
        assert set(await registry.list()) == {b"renewed"}


async def test_lease_of_another_process_at_the_address_stays(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        registry = Registry(under_test)
        await registry.announce("a:1", ONE, announcement=b"old")
        await registry.announce("a:1", OTHER, announcement=b"new")
        assert not await registry.withdraw("a:1", ONE)
        assert set(await registry.list()) == {b"new"}
        assert await registry.withdraw("a:1", OTHER)
        assert not await registry.withdraw("a:1", OTHER)
        assert await registry.list() == {}


async def test_leases_are_bounded_and_lapsed_ones_make_room(servers: Servers) -> None:
    async with running_cache(*servers) as under_test:
        registry = Registry(under_test)
        for number in range(MAX_LEASES):
            lease_ms = 60_000 if number else 500
            await under_test.cache.state.run(announce_node(f"n{number}:1", ONE, lease_ms, b"%d" % number))
        await registry.announce("n1:1", announcement=b"1")
        async with asyncio.timeout(60):
            while b"0" in await registry.list():
                await asyncio.sleep(0.02)
        await registry.announce("late:1")
        with pytest.raises(MeshError) as caught:
            await registry.announce("later:1")
        assert caught.value.reason_name == "QUOTA_EXHAUSTED"
        assert len(await registry.list()) == MAX_LEASES


@pytest.mark.parametrize("tenant", ["acme", "Mesh", "mesh\0", "mesh "])
async def test_tenant_can_neither_announce_nor_read_nor_withdraw(servers: Servers, tenant: str) -> None:
    async with running_cache(*servers) as under_test:
        await Registry(under_test).announce("a:1")
        registry = Registry(under_test, tenant)
        for attempt in (registry.announce("b:1"), registry.withdraw("a:1"), registry.list()):
            with pytest.raises(MeshError) as caught:
                await attempt
            assert caught.value.reason_name == "PRINCIPAL_INVALID"
        assert len(await Registry(under_test).list()) == 1


@pytest.mark.parametrize(
    "fields",
    [{"address": ""}, {"address": "a" * 257}, {"instance": ""}, {"instance": "x" * 32}, {"lease_ms": 499},
     {"lease_ms": 600_001}, {"announcement": b""}, {"announcement": bytes(1_025)}],
)  # fmt: skip
async def test_malformed_announcement_is_refused(servers: Servers, fields: dict[str, Any]) -> None:
    async with running_cache(*servers) as under_test:
        with pytest.raises(MeshError) as caught:
            await Registry(under_test).announce(**{"address": "a:1", **fields})
        assert caught.value.reason_name == "REQUEST_INVALID"
