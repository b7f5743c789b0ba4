"""A real OpenSearch node for tests, which can be killed and started again on what it left on disk."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self

import httpx

from helpers.maven import find_classpath

_PROJECT: Final = Path(__file__).parent / "opensearch"
_START_S: Final = 120.0


class OpenSearchNode:
    """One node in a folder of its own; use it in `with`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="opensearch-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where it listens; the same after it was started again."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        ready = self._folder / "port"
        ready.unlink(missing_ok=True)
        # Not that of JAVA_HOME: this line of OpenSearch needs a security manager, which Java 24 no longer has.
        command = ["java", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [
            "-cp",
            find_classpath(_PROJECT),
            str(_PROJECT / "OpenSearchNode.java"),
            str(self._folder),
            str(self._port),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline_s = time.monotonic() + _START_S
        while not ready.exists():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-3_000:]
            assert time.monotonic() < deadline_s, "the node does not start"
            time.sleep(0.05)
        self._port = int(ready.read_text())

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request, and its reply as JSON."""
        reply = httpx.request(method, f"{self.url}{path}", json=body, timeout=30)
        reply.raise_for_status()
        return reply.json()
