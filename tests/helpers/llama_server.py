"""The real llama-server, with the small model, as a process of its own that may be killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from helpers.models import smollm2_path
from ssop_cli.embedded import free_port

SLOTS: Final = 2
_START_S: Final = 60.0
# The engine's own server, on a port: what the library runs is llama.cpp's `llama-server`.
_PROGRAM: Final = """
import os, signal, sys
os.environ["OMP_WAIT_POLICY"] = "passive"
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.n_parallel, params.n_ctx = slots, 2048 * slots
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_batch = params.n_ubatch = 8
params.cache_ram_mib, params.fit_params, params.offline, params.ui = 0, False, True, False
params.endpoint_slots = params.endpoint_metrics = True
params.verbosity = -1
params.hostnames, params.port = ["127.0.0.1"], port
server = xllamacpp.Server(params)
signal.pause()
"""


@dataclass
class LlamaServer:
    """A server process."""

    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """What users write into their settings."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it has loaded its model."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(smollm2_path()), str(self.port), str(SLOTS)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}")
            try:
                self.read("/health")
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("the server did not start")

    def read(self, path: str) -> Any:
        """A page of it. Raises OSError."""
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return json.load(answer)

    def busy_slots(self) -> int:
        """Slots that the server itself says are in use."""
        return sum(bool(slot["is_processing"]) for slot in self.read("/slots"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """End it. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


async def freed_after_s(server: LlamaServer, since_s: float, timeout_s: float = 10.0) -> float:
    """Seconds from `since_s` (monotonic) until the server says that no slot is in use."""
    while await asyncio.to_thread(server.busy_slots):
        if time.monotonic() - since_s > timeout_s:
            raise AssertionError("the slot was never freed")
        await asyncio.sleep(0.002)
    return time.monotonic() - since_s


@contextmanager
def llama_server() -> Iterator[LlamaServer]:
    """A server that is up."""
    server = LlamaServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()
