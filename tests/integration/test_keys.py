"""API keys made on one router, in a real store, on the other routers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.cache_service import running_cache
from helpers.live_mesh import LiveMesh, wait_until
from helpers.machine import stretched
from helpers.redis_server import EVERY_REDIS, RedisServer, redis_pair
from ssop.v1 import keys_pb2 as pb
from ssop_cache.core import scripts
from ssop_cache.core.keys import KEY_RECORDS
from ssop_cache.key_purge import KeyPurge
from ssop_chassis.call import Peer, bind
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal, Secrets
from ssop_chassis.memory import MemoryPeer
from ssop_chassis.tallies import Counter
from ssop_router.assembly import OWN_PRINCIPAL
from ssop_router.dependency import Dependency
from ssop_router.key_admin import KeyServicer
from ssop_router.keys import Keys, KeysFile, KeysStore
from ssop_sdk import AuthenticationError, KeyUnknown, ScopeMissing, SsopClient

SECRET = bytes(range(32))
ADMIN = Principal("ops", "root", frozenset({"admin"}))
DAY_MS = 86_400_000


@dataclass
class Edge:
    """What a router does about keys."""

    keys: Keys
    peer: MemoryPeer

    async def call(self, name: str, request: Any, kind: type[Any]) -> Any:
        reply = await self.peer.unary(
            f"/ssop.v1.KeyService/{name}", request.SerializeToString(), timeout_s=30, metadata={}
        )
        return kind.FromString(reply)

    async def create(self, **fields: Any) -> pb.CreateKeyResponse:
        values = {"tenant": "acme", "scopes": ["lite"]} | fields
        made: pb.CreateKeyResponse = await self.call("CreateKey", pb.CreateKeyRequest(**values), pb.CreateKeyResponse)
        return made

    async def outcome(self, key: str) -> str:
        """Look once; then the tenant of the key, or the reason of its refusal."""
        await self.keys.refresh()
        try:
            return self.keys.authenticate({"authorization": f"Bearer {key}"}).tenant
        except MeshError as error:
            return error.reason_name


@pytest.fixture(scope="module", params=EVERY_REDIS)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_pair(request.param) as pair:
        yield pair


@pytest.fixture
async def edges(servers: tuple[RedisServer, RedisServer], tmp_path: Path) -> AsyncIterator[Callable[..., Edge]]:
    (tmp_path / "keys.toml").write_text("")
    now_ms = asyncio.get_running_loop().time

    async with running_cache(*servers) as cache:

        def make(principal: Principal = ADMIN, wall_ms: Callable[[], int] = lambda: 1_000) -> Edge:
            def depend() -> Dependency:
                peer: Peer = cache.peer
                return Dependency("keys", peer, skip_ms=1, clock_ms=lambda: round(now_ms() * 1000))

            def sign() -> dict[str, str | bytes]:
                return {"x-tenant-bin": OWN_PRINCIPAL.tenant.encode()}

            store = KeysStore(
                depend(),
                metadata=sign,
                timeout_s=10,
                clock_ms=lambda: round(now_ms() * 1000),
                on_failure=lambda: None,
            )
            file = KeysFile(tmp_path / "keys.toml", on_failure=lambda: None)
            keys = Keys(file, store, Secrets(SECRET), max_age_ms=60_000, now_ms=wall_ms)
            servicer = KeyServicer(
                depend(), SECRET, metadata=sign, file_records=lambda: file.records, timeout_s=10, now_ms=wall_ms
            )
            service = bind(pb.DESCRIPTOR.services_by_name["KeyService"], servicer)
            return Edge(keys, MemoryPeer([service], lambda _: principal))

        yield make


async def test_key_made_on_one_router_is_good_on_another(edges: Callable[..., Edge]) -> None:
    one, other = edges(), edges()
    made = await one.create()
    assert await other.outcome(made.plain_key) == "acme"


async def test_rotation_overlaps_on_every_router_and_ends(edges: Callable[..., Edge]) -> None:
    clock = [1_000]
    one, other = edges(), edges(wall_ms=lambda: clock[0])
    made = await one.create()
    request = pb.RotateKeyRequest(key_id=made.key.key_id, overlap_ms=500)
    rotated = await one.call("RotateKey", request, pb.RotateKeyResponse)
    assert [await other.outcome(key) for key in (made.plain_key, rotated.plain_key)] == ["acme", "acme"]
    clock[0] = 1_500
    assert [await other.outcome(key) for key in (made.plain_key, rotated.plain_key)] == ["KEY_INVALID", "acme"]


async def test_revoked_key_is_refused_everywhere_with_both_secrets(edges: Callable[..., Edge]) -> None:
    one, other = edges(), edges()
    made = await one.create()
    request = pb.RotateKeyRequest(key_id=made.key.key_id, overlap_ms=DAY_MS)
    rotated = await one.call("RotateKey", request, pb.RotateKeyResponse)
    for _ in range(2):
        await other.call("RevokeKey", pb.RevokeKeyRequest(key_id=made.key.key_id), pb.RevokeKeyResponse)
    for edge in (one, other):
        outcomes = [await edge.outcome(key) for key in (made.plain_key, rotated.plain_key)]
        assert outcomes == ["KEY_INVALID", "KEY_INVALID"]


async def test_second_rotation_breaks_no_promise_of_the_first_unless_it_is_asked_to(edges: Callable[..., Edge]) -> None:
    edge = edges()
    first = await edge.create()
    key_id = first.key.key_id
    second = await edge.call("RotateKey", pb.RotateKeyRequest(key_id=key_id, overlap_ms=DAY_MS), pb.RotateKeyResponse)
    with pytest.raises(MeshError, match="overlaps still"):
        await edge.call("RotateKey", pb.RotateKeyRequest(key_id=key_id, overlap_ms=1), pb.RotateKeyResponse)
    assert [await edge.outcome(key) for key in (first.plain_key, second.plain_key)] == ["acme", "acme"]
    third = await edge.call("RotateKey", pb.RotateKeyRequest(key_id=key_id), pb.RotateKeyResponse)
    outcomes = [await edge.outcome(made.plain_key) for made in (first, second, third)]
    assert outcomes == ["KEY_INVALID", "KEY_INVALID", "acme"]


async def test_key_that_has_expired_is_not_rotated(edges: Callable[..., Edge]) -> None:
    clock = [1_000]
    edge = edges(wall_ms=lambda: clock[0])
    made = await edge.create(lifetime_ms=500)
    clock[0] = 1_500
    with pytest.raises(MeshError, match="expired"):
        await edge.call("RotateKey", pb.RotateKeyRequest(key_id=made.key.key_id), pb.RotateKeyResponse)


async def test_store_put_back_to_an_older_state_is_noticed_by_those_who_did_not_look(
    edges: Callable[..., Edge], servers: tuple[RedisServer, RedisServer]
) -> None:
    one, other = edges(), edges()
    await one.create()
    backup = [(name, servers[0].ask("DUMP", name)) for name in KEY_RECORDS]
    lost = await one.create()
    assert await other.outcome(lost.plain_key) == "acme"
    for name, dump in backup:
        servers[0].ask("RESTORE", name, 0, dump, "REPLACE")
    made = await one.create()
    assert [await other.outcome(key) for key in (lost.plain_key, made.plain_key)] == ["KEY_INVALID", "acme"]


async def test_record_that_is_spoilt_keeps_no_other_from_the_routers(
    edges: Callable[..., Edge], servers: tuple[RedisServer, RedisServer]
) -> None:
    edge = edges()
    servers[0].ask("HSET", KEY_RECORDS[0], "spoilt", b"\xff\xff")
    made = await edge.create()
    assert await edge.outcome(made.plain_key) == "acme"
    servers[0].ask("HDEL", KEY_RECORDS[0], "spoilt")


async def test_two_makers_of_one_id_make_one_key(edges: Callable[..., Edge]) -> None:
    makers = [edges() for _ in range(8)]
    made = await asyncio.gather(*(maker.create(key_id="twin1") for maker in makers), return_exceptions=True)
    errors = [result for result in made if isinstance(result, MeshError)]
    assert [error.reason_name for error in errors] == ["KEY_EXISTS"] * 7


async def test_of_changes_at_the_same_time_none_is_lost(edges: Callable[..., Edge]) -> None:
    one, other = edges(), edges()
    made = await one.create()
    key_id = made.key.key_id
    rotate = one.call("RotateKey", pb.RotateKeyRequest(key_id=key_id, overlap_ms=DAY_MS), pb.RotateKeyResponse)
    revoke = other.call("RevokeKey", pb.RevokeKeyRequest(key_id=key_id), pb.RevokeKeyResponse)
    await asyncio.gather(rotate, revoke, return_exceptions=True)
    assert await one.outcome(made.plain_key) == "KEY_INVALID"


async def test_list_shows_no_secret(edges: Callable[..., Edge]) -> None:
    edge = edges()
    made = await edge.create(tenant="lists", lifetime_ms=DAY_MS)
    response = await edge.call("ListKeys", pb.ListKeysRequest(tenant="lists"), pb.ListKeysResponse)
    assert list(response.keys) == [made.key]
    assert made.plain_key.split("_")[2].encode() not in response.SerializeToString()


@pytest.mark.parametrize("name", ["CreateKey", "ListKeys", "RotateKey", "RevokeKey"])
async def test_every_method_needs_the_scope(edges: Callable[..., Edge], name: str) -> None:
    edge = edges(Principal("acme", "k", frozenset({"lite", "full", "rag", "ssop"})))
    with pytest.raises(MeshError) as caught:
        await edge.call(name, pb.CreateKeyRequest(tenant="a", scopes=["admin"]), pb.CreateKeyResponse)
    assert (caught.value.reason_name, caught.value.metadata["scope"]) == ("SCOPE_MISSING", "admin")


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": ""},
        {"tenant": "mesh"},
        {"tenant": "a b"},
        {"tenant": "x" * 65},
        {"scopes": []},
        {"scopes": ["root"]},
        {"key_id": "A"},
        {"key_id": "x" * 33},
        {"lifetime_ms": -1},
    ],
)
async def test_bad_keys_are_not_made(edges: Callable[..., Edge], fields: dict[str, Any]) -> None:
    with pytest.raises(MeshError) as caught:
        await edges().create(**fields)
    assert caught.value.reason_name == "REQUEST_INVALID"
    assert next(iter(fields)) in str(caught.value)


@pytest.mark.parametrize("tenant", ["acme", "router", ""])
async def test_only_routers_reach_the_store(servers: tuple[RedisServer, RedisServer], tenant: str) -> None:
    async with running_cache(*servers) as cache:
        for name in ("ReadKeys", "WriteKey"):
            with pytest.raises(MeshError) as caught:
                await cache.peer.unary(
                    f"/ssop.v1.KeyStoreService/{name}", b"", timeout_s=10, metadata={"x-tenant-bin": tenant.encode()}
                )
            assert caught.value.reason_name == "PRINCIPAL_INVALID"


def run_ssop(mesh: LiveMesh, *arguments: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "ssop_cli.main",
        "keys",
        *arguments,
        "--state-dir",
        str(mesh.places.state),
        "--json",
    ]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def is_refused(mesh: LiveMesh, key: str) -> bool:
    with SsopClient(api_key=key, target=mesh.target, timeout_s=10) as client:
        try:
            client.models()
        except AuthenticationError:
            return True
    return False


def test_operator_makes_rotates_and_revokes_a_key_on_a_running_mesh(mesh: LiveMesh) -> None:
    made = run_ssop(mesh, "create", "--tenant", "shop", "--scopes", "lite", "--expires", "1d")
    old = made["plain_key"]
    wait_until(lambda: not is_refused(mesh, old), 60, "a new key is good")
    with SsopClient(api_key=old, target=mesh.target) as client, pytest.raises(ScopeMissing):
        client.keys.show()
    new = run_ssop(mesh, "rotate", made["id"], "--overlap", "1h")["plain_key"]
    wait_until(lambda: not is_refused(mesh, new), 60, "a rotated key is good")
    assert not is_refused(mesh, old)
    assert run_ssop(mesh, "revoke", made["id"])["state"] == "revoked"
    wait_until(lambda: is_refused(mesh, old) and is_refused(mesh, new), stretched(5), "a revoked key is refused")


def test_key_of_the_file_is_listed_and_left_alone(mesh: LiveMesh, client: SsopClient) -> None:
    (own,) = [key for key in client.keys.show() if key.key_id == "local"]
    assert own.is_in_file
    with pytest.raises(KeyUnknown, match="keys file"):
        client.keys.revoke("local")


async def test_keys_that_ended_are_purged_after_their_time(servers: tuple[RedisServer, RedisServer]) -> None:
    state = servers[0]
    state.ask("DEL", *KEY_RECORDS)
    now_ms = int(state.ask("TIME")[0]) * 1000
    async with running_cache(*servers) as under_test:
        ended = {"gone": now_ms - 2 * DAY_MS, "kept": now_ms - 1_000, "good": 0}
        for key_id, revoked_at_ms in ended.items():
            record = pb.KeyRecord(info=pb.KeyInfo(key_id=key_id, tenant="acme", revoked_at_ms=revoked_at_ms))
            await under_test.cache.state.run(scripts.write_key(key_id, b"", record.SerializeToString(), most=9))
        before, *_ = await under_test.cache.state.run(scripts.read_keys(0))
        counter = Counter("purged", "Purged.", registry=CollectorRegistry())
        purge = KeyPurge(under_test.cache.state, counter, kept_ms=DAY_MS, interval_ms=1)
        assert await purge.purge() == 1
        assert await purge.purge() == 0
        after, *records = await under_test.cache.state.run(scripts.read_keys(0))
        assert {pb.KeyRecord.FromString(scripts.data(data)).info.key_id for data in records} == {"kept", "good"}
        # Routers hear of it as of any change.
        assert int(after) > int(before)
        # One that has changed since it was read stays.
        (dropped,) = await under_test.cache.state.run(scripts.drop_key("kept", b"as it was"))
        assert dropped == 0
