"""A whole mesh for tests: `ssop up` with the real model, real Redis, on free ports."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from helpers.machine import stretched
from ssop_chassis.identity import Principal, Signer, load_secret
from ssop_chassis.serving import wall_clock_ms
from ssop_cli.embedded import STORE_TIMEOUT_MS, default_settings, dump_toml, free_port, make_identity
from ssop_cli.places import Places, find_places, make_places
from ssop_cli.report import ChildReport, Report, read_report
from ssop_inference.models import fetch_model

MODEL = "smollm2-135m-instruct"
READY_TIMEOUT_S = 180.0
SETTLE_MS = 1_000
"""What storing an answer may cost a router, by default."""
M = TypeVar("M", bound=Message)


def wait_until(predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return when the predicate holds; fail, naming `what`, when it does not within `timeout_s` seconds."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(0.02)


def models_cache() -> Path:
    """Where tests keep the model between runs; fetched when it is not there."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ssop-tests" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    fetch_model(MODEL, folder)
    return folder


@dataclass
class LiveMesh:
    """A running mesh."""

    places: Places
    process: "subprocess.Popen[bytes]"

    @property
    def report(self) -> Report:
        """What the supervisor says."""
        report = read_report(self.places.report)
        assert report is not None
        return report

    @property
    def target(self) -> str:
        """Address of the router."""
        return self.report.target

    @property
    def url(self) -> str:
        """Address of the HTTP edge."""
        return f"http://{self.child('gateway').address}"

    @property
    def key(self) -> str:
        """The API key of tenant `local`."""
        return self.places.client_key.read_text().strip()

    def child(self, name: str) -> ChildReport:
        """One child, as it is now."""
        return next(child for child in self.report.children if child.name == name)

    def is_ready(self) -> bool:
        """Whether every child serves."""
        report = read_report(self.places.report)
        return report is not None and report.pid == self.process.pid and report.phase == "ready"

    def wait_ready(self) -> None:
        """Wait until every child serves; say what the logs say if they don't."""

        def is_settled() -> bool:
            return self.is_ready() or self.process.poll() is not None

        wait_until(is_settled, READY_TIMEOUT_S, "the mesh is ready")
        assert self.process.poll() is None, self.log("up")

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to a child; returns its process id."""
        pid = self.child(name).pid
        os.kill(pid, number)
        return pid

    def wait_restarted(self, name: str, pid: int) -> None:
        """Wait until another process serves as this child."""
        wait_until(lambda: self.child(name).pid not in {0, pid} and self.is_ready(), 60, f"{name} is restarted")

    def channel(self, service: str) -> Any:
        """A channel to an inner service, past the router. Close it, or use it in `with`."""
        return grpc.insecure_channel(f"unix:{self.places.socket(service)}")

    def sign(self, tenant: str, *scopes: str) -> list[tuple[str, str | bytes]]:
        """Metadata of a principal that the router might have made."""
        signer = Signer(load_secret(self.places.secret), "router", wall_clock_ms)
        return list(signer.metadata(Principal(tenant, "k", frozenset(scopes))).items())

    def call(self, service: str, method: str, tenant: str, request: Message, kind: type[M]) -> M:
        """Call a unary method of an inner service, such as `CacheService/Admit`, for a tenant with the scope `rag`."""
        with self.channel(service) as channel:
            rpc = channel.unary_unary(f"/ssop.v1.{method}")
            return kind.FromString(rpc(request.SerializeToString(), timeout=20, metadata=self.sign(tenant, "rag")))

    def log(self, name: str) -> str:
        """The log of a child."""
        path = self.places.log(name)
        return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def run_mesh(
    folder: Path, changes: Mapping[str, Mapping[str, Any]] | None = None, *, has_http: bool = False
) -> Iterator[LiveMesh]:
    """Run a mesh with its state in `folder`, and `changes` to its default settings by section, until the block ends."""
    places = find_places(folder, os.environ)
    make_places(places)
    make_identity(places)
    http_port = free_port() if has_http else 0
    document = default_settings(places, port=free_port(), models_dir=models_cache(), model=MODEL, http_port=http_port)
    # A machine that has much to do is late; what a test says of time it says by `stretched` too.
    bound_ms = round(stretched(STORE_TIMEOUT_MS))
    document["router"]["admission_timeout_ms"] = document["cache"]["redis_timeout_ms"] = bound_ms
    document["router"]["settle_timeout_ms"] = round(stretched(SETTLE_MS))
    for section, values in (changes or {}).items():
        document.setdefault(section, {}).update(values)
    config = folder / "test.toml"
    config.write_text(dump_toml(document))
    command = [sys.executable, "-m", "ssop_cli.main", "up", "--state-dir", str(folder), "--config", str(config)]
    log = places.log("up").open("wb")
    mesh = LiveMesh(places, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        mesh.wait_ready()
        yield mesh
    finally:
        mesh.process.terminate()
        try:
            mesh.process.wait(60)
        except subprocess.TimeoutExpired:
            mesh.process.kill()
            mesh.process.wait()
        log.close()
