"""The mesh's secret is changed under keys that are stored, one service after the other, and nobody is locked out."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.redis_server import RedisServer, redis_pair
from helpers.router_fleet import Fleet, FleetRouter, measure_s, run_fleet
from helpers.scripted_mesh import SECRET, R, ask
from helpers.scripted_node import ScriptedNode
from ssop.v1 import keys_pb2, keys_pb2_grpc, mesh_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.identity import Secrets

NEW = hashlib.sha256(b"the secret after that").digest()
Servers = tuple[RedisServer, RedisServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


@asynccontextmanager
async def fleet_of(folder: Path, servers: Servers, secrets: Secrets, **options: Any) -> AsyncIterator[Fleet]:
    folder.mkdir()
    nodes = {"full-1": ScriptedNode("full-1", [mesh_pb2.TIER_FULL])}
    routers = options.pop("routers", 1)
    async with run_fleet(
        folder, nodes, servers=servers, routers=routers, secrets=secrets, keys_poll_ms=50, **options
    ) as fleet:
        yield fleet


async def create(router: FleetRouter, key_id: str) -> str:
    stub: Any = keys_pb2_grpc.KeyServiceStub(router.channel)
    request = keys_pb2.CreateKeyRequest(key_id=key_id, tenant="acme", scopes=["full", "ssop"])
    response = await stub.CreateKey(request, timeout=30, metadata=router.metadata)
    return str(response.plain_key)


async def hashed_at_ms(router: FleetRouter) -> dict[str, int]:
    stub: Any = keys_pb2_grpc.KeyServiceStub(router.channel)
    response = await stub.ListKeys(keys_pb2.ListKeysRequest(), timeout=30, metadata=router.metadata)
    return {key.key_id: key.hashed_at_ms for key in response.keys if not key.is_in_file}


async def reason_of(router: FleetRouter, key: str) -> ErrorReason.ValueType | None:
    """How a request with this key ends; None: well."""
    mine, router.key = router.key, key
    try:
        error = (await router.ask(ask("who is there?", policy="full"))).error
    finally:
        router.key = mine
    return error.reason if error is not None else None


async def is_taken(router: FleetRouter, key: str) -> bool:
    return await reason_of(router, key) is None


async def test_stored_keys_outlive_the_secret_that_they_were_made_under(servers: Servers, tmp_path: Path) -> None:
    async with fleet_of(tmp_path / "a", servers, Secrets(SECRET, next=NEW)) as fleet:
        router = fleet.routers[0]
        used, unused = await create(router, "used"), await create(router, "unused")
        await measure_s(lambda: is_taken(router, used), 60)
        made_ms = await hashed_at_ms(router)
    # The router goes first; the cache service still signs nothing, and takes both.
    async with fleet_of(
        tmp_path / "b", servers, Secrets(NEW, old=SECRET), cache_secrets=Secrets(SECRET, next=NEW)
    ) as fleet:
        router = fleet.routers[0]
        await measure_s(lambda: is_taken(router, used), 60)

        async def is_rehashed() -> bool:
            return (await hashed_at_ms(router))["used"] > made_ms["used"]

        await measure_s(is_rehashed, 60)
        assert (await hashed_at_ms(router))["unused"] == made_ms["unused"]
        assert await is_taken(router, used)
    async with fleet_of(tmp_path / "c", servers, Secrets(NEW)) as fleet:
        router = fleet.routers[0]
        await measure_s(lambda: is_taken(router, used), 60)
        assert await reason_of(router, unused) == R.ERROR_REASON_KEY_INVALID
        # The file's key is under the first secret still, and that is good no more.
        assert await reason_of(router, router.key) == R.ERROR_REASON_KEY_INVALID


async def test_a_service_that_does_not_know_the_secret_is_said_to_be_gone(servers: Servers, tmp_path: Path) -> None:
    async with fleet_of(tmp_path / "a", servers, Secrets(NEW, old=SECRET), cache_secrets=Secrets(SECRET)) as fleet:
        reply = await fleet.routers[0].ask(ask(policy="full"))
        assert reply.error is None
        status = next(frame.status for frame in reply.frames if frame.HasField("status"))
        assert "cache" in status.unavailable
