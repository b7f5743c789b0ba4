"""The cache service as a process of its own, over gRPC."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.cache_service import HIT, LEASE, answer
from helpers.eventually import eventually
from helpers.redis_server import RedisServer, redis_pair
from ssop.v1 import cache_pb2
from ssop_chassis.call import Peer
from ssop_chassis.errors import MeshError
from ssop_chassis.grpc_transport import connect
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms

KEY = b"\1" * 32
SECRET = hashlib.sha256(b"a secret for tests").digest()
Servers = tuple[RedisServer, RedisServer]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with redis_pair() as pair:
        yield pair


def write_config(folder: Path, state_url: str, cache_url: str) -> Path:
    secret = folder / "secret"
    secret.write_text(SECRET.hex())
    config = folder / "ssop.toml"
    config.write_text(
        f'[mesh]\nsecret_file = "{secret}"\n'
        f'[cache]\nlisten = ["unix:{folder}/c.sock"]\nstate_url = "{state_url}"\ncache_url = "{cache_url}"\n'
        "redis_timeout_ms = 2000\n"
    )
    return config


def start(config: Path, log: Path) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SSOP_")}
    command = [sys.executable, "-m", "ssop_cache.main", "--config", str(config)]
    with log.open("wb") as stderr:
        return subprocess.Popen(command, stderr=stderr, env=environ)


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Peer]:
    peer = connect(f"unix:{folder}/c.sock")
    try:
        yield peer
    finally:
        await peer.close()


def messages(log: Path) -> list[str]:
    return [json.loads(line)["message"] for line in log.read_text().splitlines() if line.startswith("{")]


async def test_process_serves_and_drains(servers: Servers, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(write_config(tmp_path, servers[0].url, servers[1].url), log)
    signer = Signer(SECRET, "router", wall_clock_ms)
    metadata = signer.metadata(Principal("acme", "k1"))
    try:
        await eventually(lambda: "ready" in messages(log), timeout_s=20)
        async with connected(tmp_path) as peer:

            async def admit(name: str) -> cache_pb2.AdmitResponse:
                request = cache_pb2.AdmitRequest(request_id=name, cache_key=KEY, lease_ms=5000).SerializeToString()
                path = "/ssop.v1.CacheService/Admit"
                data = await peer.unary(path, request, timeout_s=5, metadata=metadata)
                return cache_pb2.AdmitResponse.FromString(data)

            lease = await admit("a")
            assert lease.outcome == LEASE
            commit = cache_pb2.CommitRequest(
                cache_key=KEY, fencing_token=lease.fencing_token, chunk=answer(), is_complete=True
            )
            path = "/ssop.v1.CacheService/Commit"
            await peer.unary(path, commit.SerializeToString(), timeout_s=5, metadata=metadata)
            assert (await admit("b")).outcome == HIT
            with pytest.raises(MeshError) as caught:
                await peer.unary(path, b"", timeout_s=5)
            assert caught.value.reason_name == "PRINCIPAL_INVALID"
        process.terminate()
        assert process.wait(15) == 0
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
        assert process.wait(20) == 1
    finally:
        process.kill()
        process.wait()
    assert "it would drop quotas and leases" in log.read_text()
