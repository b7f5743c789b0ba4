"""Meshes to measure: real Redis, cache service, node and routers, each a process; only the model is replayed.

Services speak over unix sockets, the routers listen on loopback. Key, rate limit and quota, admission script, cache,
classifier, codec, receipts and metrics are on; retrieval is off.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import grpc
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.certificates import make_authority, make_certificate
from helpers.live_mesh import READY_TIMEOUT_S, LiveMesh, wait_until
from helpers.load_requests import GENERATE, Requests, write_recording
from ssop_chassis.transport import connector
from ssop_cli.embedded import default_settings, dump_toml, free_port, make_identity
from ssop_cli.places import Places, find_places, make_places

Transport = Literal["native", "inner", "grpc"]
PROCESSES: Final = ("router", "inference", "cache", "redis-state", "redis-cache")
CALLS: Final = 4_096
_STATE_MIB: Final = 2_048
"""As in k8s-free-deploy/redis: each request of the last five minutes is 250 bytes of the state."""
# A queue in front of a store is load and no failure; what is done without a store is a flaw of the answer.
_PATIENCE_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class BenchMesh:
    """A mesh that runs. `targets` are the routers, `ca_file` is empty without TLS."""

    mesh: LiveMesh
    targets: Sequence[str]
    routers: Mapping[str, int]
    ca_file: str

    @property
    def key(self) -> str:
        """Its one API key."""
        return self.mesh.key

    @property
    def pids(self) -> dict[str, int]:
        """Processes by name."""
        children = {child.name: child.pid for child in self.mesh.report.children}
        return {**{name: children[name] for name in PROCESSES}, **self.routers}


def bench_settings(
    mesh_document: dict[str, Any], folder: Path, transport: Transport, wait_ms: float, calls: int, store_mib: int
) -> dict[str, Any]:
    """The settings of a mesh to measure."""
    recording = folder / "recording.jsonl"
    recording.write_text(write_recording(wait_ms))
    document = mesh_document
    del document["rag"], document["router"]["rag_address"]
    document["mesh"] |= {
        "transport": transport,
        "max_concurrent_calls": calls,
        # The load generator keeps the connections that it has: asked to connect anew, it would end after an hour.
        "max_connection_age_ms": 0,
        "metrics_listen": {name: f"127.0.0.1:{free_port()}" for name in ("router", "cache", "inference")},
    }
    document["inference"] |= {
        "models": [{"name": "null", "backend": "replay", "path": str(recording), "tiers": ["lite", "full"]}],
        "max_waiting": CALLS,
    }
    document["inference"]["models"][0]["slots"] = CALLS
    document["cache"]["redis_timeout_ms"] = _PATIENCE_MS
    if store_mib:
        document["cache"]["local_bytes"] = store_mib << 20
    document["router"] |= {
        "max_in_flight": CALLS,
        "admission_timeout_ms": _PATIENCE_MS,
        "settle_timeout_ms": _PATIENCE_MS,
    }
    return document


@contextmanager
def run_bench_mesh(
    folder: Path,
    transport: Transport,
    *,
    wait_ms: float = 0.0,
    routers: int = 1,
    has_tls: bool = False,
    calls: int = CALLS,
    store_mib: int = 0,
    python: Path | None = None,
) -> Iterator[BenchMesh]:
    """Run a mesh with its state in `folder`, which must be there, until the block ends.

    The model waits `wait_ms` before each of its 12 tokens. `calls` are taken at the same time by each service.
    `store_mib`: what Redis and the cache service keep of answers at most, each; 0 is as ever. `python` is the
    interpreter of the services, this one unless given.
    """
    places = find_places(folder / "state", os.environ)
    make_places(places)
    make_identity(places)
    port = free_port()
    document = default_settings(places, port=port, models_dir=folder, model="null")
    document = bench_settings(document, folder, transport, wait_ms, calls, store_mib)
    document["router"]["routers"] = routers
    ca_file = ""
    if has_tls:
        authority = make_authority(folder)
        host = make_certificate(folder, authority)
        ca_file = str(authority.certificate)
        document["mesh"]["tls"] = {
            "certificate_file": str(host.certificate),
            "key_file": str(host.key),
            "ca_file": ca_file,
        }
    config = folder / "bench.toml"
    config.write_text(dump_toml(document))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SSOP_")}
    with (folder / "up.log").open("wb") as log:
        # The supervisor starts services with what it takes for its own interpreter.
        start = f"import sys; sys.executable = {str(python or sys.executable)!r}; from ssop_cli.main import run; run()"
        command = [sys.executable, "-c", start, "up", "--state-dir", str(places.state), "--config", str(config)]
        up = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        started: list[subprocess.Popen[bytes]] = []
        try:
            mesh = LiveMesh(places, up)
            try:
                mesh.wait_ready()
            except AssertionError as error:
                raise AssertionError((folder / "up.log").read_text()) from error
            _set_memory(places, "redis-state", _STATE_MIB)
            if store_mib:
                _set_memory(places, "redis-cache", store_mib)
            pids, targets = {}, [f"127.0.0.1:{port}"]
            for number in range(2, routers + 1):
                process, target = _start_router(folder, config, number, environ)
                started.append(process)
                targets.append(target)
                pids[f"router-{number}"] = process.pid
            yield BenchMesh(mesh, targets, pids, ca_file)
        finally:
            for process in [*started, up]:
                process.terminate()
            for process in [*started, up]:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


async def record_answer(mesh: BenchMesh) -> list[bytes]:
    """The messages of one answer."""
    messages: list[bytes] = []
    peer = connector("native")(mesh.targets[0])
    metadata = {"authorization": f"Bearer {mesh.key}"}
    await peer.stream(GENERATE, Requests(os.getpid()).encode(0), messages.append, timeout_s=30, metadata=metadata)
    await peer.close()
    return messages


def _set_memory(places: Places, name: str, mib: int) -> None:
    with redis.Redis(unix_socket_path=str(places.socket(name))) as client:
        client.config_set("maxmemory", f"{mib}mb")


def _start_router(
    folder: Path, config: Path, number: int, environ: Mapping[str, str]
) -> tuple["subprocess.Popen[bytes]", str]:
    """One more router beside the first, on a port of its own."""
    document = tomllib.loads(config.read_text())
    target = f"127.0.0.1:{free_port()}"
    document["router"]["listen"] = [target]
    document["mesh"]["metrics_listen"] = {"router": f"127.0.0.1:{free_port()}"}
    own = folder / f"router-{number}.toml"
    own.write_text(dump_toml(document))
    with (folder / f"router-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ssop_router.main", "--config", str(own)], stderr=log, env=environ
        )

    def is_there() -> bool:
        if process.poll() is not None:
            raise AssertionError((folder / f"router-{number}.log").read_text())
        return _listens(target)

    wait_until(is_there, READY_TIMEOUT_S, f"router {number} serves")
    return process, target


def _listens(target: str) -> bool:
    """Whether a router says that it serves."""
    with grpc.insecure_channel(target) as channel:
        try:
            found = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1)
        except grpc.RpcError:
            return False
        return bool(found.status == health_pb2.HealthCheckResponse.SERVING)
