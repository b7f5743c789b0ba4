"""A mesh that the kernel watches, with a router that loses one frame of a hundred, and a client process that counts."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers import counting_client
from helpers.kernel_view import KernelView, Samples, build_object, copy_codec, read_metrics, run_exporter
from helpers.live_mesh import LiveMesh, run_mesh, wait_until
from helpers.opinion import TENANT, make_tenant
from helpers.redis_server import RedisServer
from ssop_cli.embedded import dump_toml, free_port
from ssop_router.failpoint import CONSENT, CONSENT_VARIABLE, SHARE_VARIABLE

SHARE = 0.01
SERVICES = ("router", "inference", "cache", "rag")
_CLIENT_S = 300
READY_S = 90.0


@dataclass
class WatchedMesh:
    """The mesh, what watches it, and where its parts tell their metrics."""

    mesh: LiveMesh
    view: KernelView
    codec: Path
    ports: dict[str, int]
    opinion: str
    """Where the opinion application is, which analyses by this mesh."""

    def read(self, service: str) -> Samples:
        """A service's own metrics."""
        return read_metrics(f"127.0.0.1:{self.ports[service]}")


@dataclass
class CountingClient:
    """A client process that has made its requests, and waits to be let go on."""

    process: "subprocess.Popen[str]"
    received: int
    missing: int
    answers: int

    def sees_gap(self) -> bool:
        """Let it go on with the SDK until that has told of a gap, and end."""
        out, _ = self.process.communicate("\n", timeout=_CLIENT_S)
        assert self.process.returncode == 0
        return bool(json.loads(out))


@contextmanager
def run_watched_mesh(folder: Path) -> Iterator[WatchedMesh]:
    """Run it with its state in `folder`, whose name must be short, until the block ends."""
    codec = copy_codec(folder / "lib")
    ports = {name: free_port() for name in SERVICES}
    listen = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    with (
        pytest.MonkeyPatch.context() as patch,
        run_exporter(folder, build_object(folder), codec, free_port()) as view,
    ):
        patch.setenv("PYTHONPATH", str(codec.parent))
        patch.setenv(SHARE_VARIABLE, str(SHARE))
        patch.setenv(CONSENT_VARIABLE, CONSENT)
        # A machine that is busy would have its prefetches shed.
        changes: dict[str, dict[str, Any]] = {"mesh": {"metrics_listen": listen}, "rag": {"prefetch_max_stretch": 0}}
        with run_mesh(folder / "m", changes, has_http=True) as mesh, run_opinion(folder, mesh) as opinion:
            yield WatchedMesh(mesh, view, codec, ports, opinion)


@contextmanager
def run_opinion(folder: Path, mesh: LiveMesh) -> Iterator[str]:
    """Run the opinion application on a Redis of its own, in front of a mesh, until the block ends; its address."""
    address = f"127.0.0.1:{free_port()}"
    tenants = folder / "tenants"
    tenants.mkdir()
    make_tenant(tenants)
    (tenants / f"{TENANT}.key").write_text(mesh.key)
    with RedisServer("state") as redis, (folder / "opinion.log").open("wb") as log:
        section = {
            "listen": [address],
            "router_address": mesh.target,
            "state_directory": str(folder / "opinion"),
            "tenants_directory": str(tenants),
            "stream_url": redis.url,
        }
        config = folder / "opinion.toml"
        config.write_text(dump_toml({"mesh": {"secret_file": os.devnull}, "opinion": section}))
        command = [sys.executable, "-m", "ssop_opinion.main", "--config", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: is_serving(process, address, log.name), READY_S, "the opinion application serves")
            yield address
        finally:
            process.terminate()
            process.wait(60)


def is_serving(process: "subprocess.Popen[bytes]", address: str, log: str) -> bool:
    """Whether a process says that it is ready."""
    assert process.poll() is None, Path(log).read_text()
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def run_client(watched: WatchedMesh, prompts: int, times: int) -> Iterator[CountingClient]:
    """Run a client that asks each of so many prompts so many times."""
    command = [sys.executable, counting_client.__file__, watched.mesh.target, watched.mesh.key, str(prompts)]
    process = subprocess.Popen([*command, str(times)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        yield CountingClient(process, **found)
    finally:
        process.kill()
        process.communicate()
