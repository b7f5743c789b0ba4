"""A server on the JVM of the machine for tests, which can be killed and started again on what it left on disk."""

import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

START_S: Final = 120.0
JAVA: Final = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Not that of JAVA_HOME: OpenSearch 2 needs a security manager, which Java 24 no longer has."""


class JavaServer(ABC):
    """One server in a folder of its own; use it in `with`."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it serves."""

    @property
    def log(self) -> Path:
        """What it writes, since it was last started."""
        return self.folder / "log"

    def launch(self, command: Sequence[str], is_ready: Callable[[], bool]) -> None:
        """Start its process and wait until it is ready; fails with the end of its log when it ends before."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline_s = time.monotonic() + START_S
        while not is_ready():
            assert self._process.poll() is None, self.log.read_text(errors="replace")[-3_000:]
            assert time.monotonic() < deadline_s, f"{type(self).__name__} does not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
