"""The cache service as a process of its own, over gRPC."""

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from google.protobuf.message import Message

from helpers.cache_service import HIT, LEASE, answer, running_cache
from helpers.child_environ import child_environ
from helpers.eventually import eventually
from helpers.log_lines import read_log
from helpers.redis_server import RedisServer, redis_pair
from ssop.v1 import cache_pb2
from ssop.v1.cache_admin_pb2 import CacheStats
from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_peer import connect
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms

KEY = b"\1" * 32
T = TypeVar("T", bound=Message)
SECRET = hashlib.sha256(b"a secret for tests").digest()
Servers = tuple[RedisServer, RedisServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


def write_config(folder: Path, state_url: str, cache_url: str, more: str = "") -> Path:
    secret = folder / "secret"
    secret.write_text(SECRET.hex())
    config = folder / "ssop.toml"
    config.write_text(
        f'[mesh]\nsecret_file = "{secret}"\n'
        f'[cache]\nlisten = ["unix:{folder}/c.sock"]\nstate_url = "{state_url}"\ncache_url = "{cache_url}"\n'
        f"redis_timeout_ms = 2000\n{more}\n"
    )
    return config


def start(config: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ssop_cache.main", "--config", str(config)]
    with log.open("wb") as stderr:
        return subprocess.Popen(command, stderr=stderr, env=child_environ())


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Peer]:
    peer = connect(f"unix:{folder}/c.sock")
    try:
        yield peer
    finally:
        await peer.close()


def messages(log: Path) -> list[str]:
    return [line["message"] for line in read_log(log)]


async def test_process_serves_and_drains(servers: Servers, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(write_config(tmp_path, servers[0].url, servers[1].url), log)
    signer = Signer(SECRET, "router", wall_clock_ms)
    metadata = signer.metadata(Principal("acme", "k1"))
    try:
        await eventually(lambda: "ready" in messages(log))
        async with connected(tmp_path) as peer:

            async def admit(name: str) -> cache_pb2.AdmitResponse:
                request = cache_pb2.AdmitRequest(request_id=name, cache_key=KEY, lease_ms=60_000).SerializeToString()
                path = "/ssop.v1.CacheService/Admit"
                data = await peer.unary(path, request, timeout_s=30, metadata=metadata)
                return cache_pb2.AdmitResponse.FromString(data)

            lease = await admit("a")
            assert lease.outcome == LEASE
            commit = cache_pb2.CommitRequest(
                cache_key=KEY, fencing_token=lease.fencing_token, chunk=answer(), is_complete=True
            )
            path = "/ssop.v1.CacheService/Commit"
            await peer.unary(path, commit.SerializeToString(), timeout_s=30, metadata=metadata)
            assert (await admit("b")).outcome == HIT
            with pytest.raises(MeshError) as caught:
                await peer.unary(path, b"", timeout_s=30)
            assert caught.value.reason_name == "PRINCIPAL_INVALID"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


async def test_killed_host_serves_nothing_that_was_flushed_while_it_was_down(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    config = write_config(tmp_path, servers[0].url, servers[1].url, f'local_directory = "{folder}"\nlocal_sync_ms = 10')
    signer = Signer(SECRET, "router", wall_clock_ms)
    log = tmp_path / "log"

    async def call(peer: Peer, method: str, tenant: str, request: Message, kind: type[T]) -> T:
        metadata = signer.metadata(Principal(tenant, "k1"))
        path = f"/ssop.v1.CacheService/{method}"
        return kind.FromString(await peer.unary(path, request.SerializeToString(), timeout_s=30, metadata=metadata))

    async def stats(peer: Peer) -> CacheStats:
        response = await call(peer, "ReadStats", "acme", cache_pb2.ReadStatsRequest(), cache_pb2.ReadStatsResponse)
        return response.stats

    keys = [number.to_bytes(32, "big") for number in range(40)]
    process = start(config, log)
    try:
        await eventually(lambda: "ready" in messages(log))
        async with connected(tmp_path) as peer:
            for key in keys:
                for tenant in ("acme", "umbrella"):
                    admit = cache_pb2.AdmitRequest(request_id=f"r{key[-1]}", cache_key=key, lease_ms=60_000)
                    lease = await call(peer, "Admit", tenant, admit, cache_pb2.AdmitResponse)
                    commit = cache_pb2.CommitRequest(
                        cache_key=key, fencing_token=lease.fencing_token, chunk=answer(tenant), is_complete=True
                    )
                    await call(peer, "Commit", tenant, commit, cache_pb2.CommitResponse)
            # The folder follows behind; the first answers of both are on it by now or soon.
            await eventually(lambda: sum(file.stat().st_size for file in folder.glob("*.log")) > 4_000)
        process.kill()
        process.wait()
        async with running_cache(*servers) as other:
            await other.client("acme").flush()
        # Only the folder could answer now.
        servers[1].ask("FLUSHALL")
        process = start(config, log)
        await eventually(lambda: "ready" in messages(log))
        async with connected(tmp_path) as peer:
            async with asyncio.timeout(60):
                while not (await stats(peer)).is_local_synced:
                    await asyncio.sleep(0.01)
            outcomes = {}
            for tenant in ("acme", "umbrella"):
                replies = [
                    await call(peer, "Lookup", tenant, cache_pb2.LookupRequest(cache_key=key), cache_pb2.LookupResponse)
                    for key in keys
                ]
                outcomes[tenant] = [reply.answer.chunk for reply in replies if reply.outcome == HIT]
        assert outcomes["acme"] == []
        assert set(outcomes["umbrella"]) == {answer("umbrella")}
    finally:
        process.kill()
        process.wait()


async def test_one_instance_for_both_roles_stops_the_start_with_the_reason(servers: Servers, tmp_path: Path) -> None:
    state, _ = servers
    link = tmp_path / "other.sock"
    link.symlink_to(state.socket)
    state.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    log = tmp_path / "log"
    process = start(write_config(tmp_path, state.url, f"unix://{link}"), log)
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
    assert "it would drop quotas and leases" in log.read_text()
