"""The process `ssop-rag` with its real embedder, for integration tests: can be killed and started again."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from helpers.child_environ import child_environ
from helpers.rag import Caller
from ssop_chassis.grpc_peer import connect
from ssop_chassis.identity import Principal, Signer
from ssop_chassis.serving import wall_clock_ms

START_S: Final = 60.0
_SECRET: Final = hashlib.sha256(b"a secret for tests").digest()


class RagProcess:
    """A service on a folder. Use it in `with`; its files stay in the folder for the next one."""

    def __init__(
        self, folder: Path, name: str = "rag", *, module: str = "ssop_rag.main", settings: str = "threads = 2"
    ) -> None:
        self._module = module
        self._config = folder / f"{name}.toml"
        self._log_path = folder / f"{name}.log"
        self.address = f"unix:{folder / name}.sock"
        secret = folder / "secret"
        secret.write_text(_SECRET.hex())
        self._config.write_text(
            f'[mesh]\nsecret_file = "{secret}"\n\n[rag]\nlisten = ["{self.address}"]\n'
            f'directory = "{folder / "index"}"\n{settings}\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RagProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(20)

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log_path.read_text()

    def launch(self) -> None:
        """Start it without waiting."""
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, "--config", str(self._config)], stderr=log, env=child_environ()
            )

    def start(self) -> None:
        """Start it, and wait until health says SERVING."""
        self.launch()
        deadline_s = time.monotonic() + START_S
        while self.health() != health_pb2.HealthCheckResponse.SERVING:
            assert self._process is not None
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline_s, self.log
            time.sleep(0.02)

    def health(self) -> int | None:
        """What health says of the service; None while nothing answers."""
        with grpc.insecure_channel(self.address) as channel:
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            request = health_pb2.HealthCheckRequest(service="ssop.v1.RagService")
            try:
                data = check(request.SerializeToString(), timeout=2)
            except grpc.RpcError:
                return None
            return int(health_pb2.HealthCheckResponse.FromString(data).status)

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def wait(self) -> int:
        """Wait for it to end by itself; its status."""
        assert self._process is not None
        return self._process.wait(START_S)

    def caller(self, tenant: str) -> Caller:
        """Calls as a tenant, on a connection of its own."""
        signer = Signer(_SECRET, "test", wall_clock_ms)
        principal = Principal(tenant, "key", frozenset({"rag"}))
        return Caller(connect(self.address), lambda: signer.metadata(principal))
